"""One idea has one class: what stands for a partition, a noisy table or a split is a frozen list.

Sizes that are to fall are limits, to be lowered with each that goes.
"""

import ast
from collections.abc import Iterator
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

MOST_MODULES = 127
"""Modules of models/; 90 are wanted."""

MOST_IMPORT_LINES = 5_700
"""Lines of imports in all packages; 3,500 are wanted."""


def modules(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    paths = {path.resolve() for name in folders for path in (ROOT / name).rglob("*.py")}
    for path in sorted(paths):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


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
    lines = sum(
        node.end_lineno - node.lineno + 1
        for _, tree in modules(*PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and node.end_lineno
    )
    assert lines <= MOST_IMPORT_LINES
