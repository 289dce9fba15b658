"""One idea has one class: what stands for a partition, a noisy table or a split is a frozen list.

Sizes that are to fall are limits, to be lowered with each that goes.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cloister

ROOT = Path(cloister.__file__).parent.parent
PACKAGES = ("cloister", "models", "tasks", "flows")

PARTITIONS = {"Partition", "Coarsening", "Histogram"}
"""A partition of a column's values, one made of another, and one with released shares."""

NOISY_TABLES = {"NoisyTable", "NoisyCells"}
"""Counts of rows with a deviation of their noise, and those of one histogram with its ends."""

SPLITS = {"BudgetSplit", "EpsilonSplit"}
"""Shares of rho for kinds of queries, and shares of epsilon."""

MOST_MODULES = 134
"""Modules of models/; 90 are wanted."""

MOST_IMPORT_SHARE = 0.0873
"""Lines of imports among those of all packages that are not empty; 0.055 is wanted."""


MOST_ASKING = {"one table or several": 39, "rows or persons": 35}
"""Places that ask what a dataset is; 10 and 5 are wanted. Specs and methods of tables ask most."""

KINDS = {"Task", "DatabaseTask", "Table", "Database", "Model", "DatabaseModel", "OneTableModel"}
"""Classes of one table and of several: to tell them apart is to ask which it is."""


@cache
def modules(*folders: str) -> list[tuple[Path, ast.Module]]:
    paths = {path.resolve() for name in folders for path in (ROOT / name).rglob("*.py")}
    return [(path, parsed(path)) for path in sorted(paths)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def classes(*folders: str) -> dict[str, ast.ClassDef]:
    nodes = (node for _, tree in modules(*folders) for node in ast.walk(tree))
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def fields_of(node: ast.ClassDef) -> set[str]:
    targets = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
    return {target.id for target in targets if isinstance(target, ast.Name)}


def methods_of(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)}


def with_subclasses(found: set[str], among: dict[str, ast.ClassDef]) -> set[str]:
    bases = {name: {ast.unparse(base) for base in node.bases} for name, node in among.items()}
    return found | {name for name, own in bases.items() if own & found}


def test_a_public_class_has_a_name_of_its_own() -> None:
    names = Counter(
        node.name
        for _, tree in modules(*PACKAGES)
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not [name for name, definitions in names.items() if definitions > 1]


def test_a_partition_is_one_class_with_named_subclasses() -> None:
    every = classes("cloister", "models")
    numbered = {name for name, node in every.items() if {"index", "size"} <= methods_of(node)}
    assert with_subclasses(numbered, every) == PARTITIONS


def test_a_noisy_table_is_one_class() -> None:
    every = classes("models")
    assert {n for n, node in every.items() if {"counts", "deviation"} <= fields_of(node)} == (
        NOISY_TABLES
    )


def test_a_budget_is_split_by_one_class_with_a_named_subclass() -> None:
    every = classes("models")
    calibrated = {name for name, node in every.items() if "calibrate" in methods_of(node)}
    assert with_subclasses(calibrated, every) == SPLITS


def test_modules_and_imports_do_not_grow() -> None:
    assert sum(1 for _ in modules("models")) <= MOST_MODULES
    imports = sum(
        node.end_lineno - node.lineno + 1
        for _, tree in modules(*PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and node.end_lineno
    )
    texts = [path.read_text(encoding="utf-8") for path, _ in modules(*PACKAGES)]
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    assert imports / lines <= MOST_IMPORT_SHARE, imports / lines


def conditions(tree: ast.Module) -> Iterator[ast.expr]:
    """What branches, filters, assertions and logical terms depend on, and each `isinstance`."""
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield from terms(test)
            case ast.Assert(test=test):
                yield from terms(test)
            case ast.comprehension(ifs=filters):
                for test in filters:
                    yield from terms(test)
            case ast.Return(value=ast.Compare() | ast.UnaryOp() | ast.BoolOp() as test):
                yield from terms(test)
            case ast.Call(func=ast.Name(id="bool"), args=[test]):
                yield from terms(test)
            case ast.Call(func=ast.Name(id="isinstance")):
                yield node


def terms(test: ast.expr) -> Iterator[ast.expr]:
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from terms(value)
        case ast.UnaryOp(operand=operand):
            yield from terms(operand)
        case ast.Compare(left=left, comparators=[ast.Constant(), *_]):
            yield left
        case ast.Compare(left=left, comparators=[right]) if "of_database" in ast.unparse(test):
            yield from (left, right)
        case _:
            yield test


def question(test: ast.expr) -> str | None:
    """Which question about a dataset a condition asks; None if it asks none."""
    text = ast.unparse(test)
    if isinstance(test, ast.Call) and text.startswith("isinstance("):
        names = {node.id for node in ast.walk(test.args[1]) if isinstance(node, ast.Name)}
        if "PersonUnit" in names:
            return "rows or persons"
        return "one table or several" if names & KINDS else None
    ends = text.split(".")[-1]
    if (
        text.endswith(".several")
        or ends == "of_database"
        or text
        in (
            *("spec.tables", "self.tables", "declared.tables", "self.spec.tables"),
            *("context.spec.tables", "basis.spec.tables", "len(self.tables)"),
        )
    ):
        return "one table or several"
    return "rows or persons" if ends in ("persons", "declared_persons") else None


def test_what_a_dataset_is_is_asked_in_few_places() -> None:
    asked = Counter(
        asked
        for _, tree in modules(*PACKAGES)
        for test in {(test.lineno, test.col_offset): test for test in conditions(tree)}.values()
        if (asked := question(test))
    )
    assert not {name for name, most in MOST_ASKING.items() if asked[name] > most}, asked
