"""The modules of tasks/ hold no state between two runs: their top-level names are constant."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "tasks").rglob("*.py"))
# Calls whose values do not change; the value of a ContextVar belongs to the context of whoever set
# it.
CONSTANT = {
    "ContextVar", "Field", "Fraction", "MappingProxyType", "ParamSpec", "Path", "TypeAdapter",
    "TypeVar", "VersionInfo", "field", "frozenset", "range", "timedelta", "tuple", "with_name",
}  # fmt: skip
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
# Cached though it is an effect: it walks a whole home, which need not be done twice by one process.
EFFECTS = {"_close_once", "model_config"}


def changeable(module: str) -> list[str]:
    """The names that a module binds to what can change, and the effects that it caches."""
    tree = ast.parse(module)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    # What is annotated in a class is a field with a default, which pydantic copies and dataclasses
    # refuse.
    bound = tree.body + [
        node for made in classes for node in made.body if not isinstance(node, ast.AnnAssign)
    ]
    names = [
        ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        for node in bound
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        and node.value
        and not fixed(node.value)
    ]
    names += [
        name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
    ]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return names + [made.name for made in functions if cached(made) and nothing(made.returns)]


def fixed(value: ast.expr) -> bool:
    """Whether an expression gives the same for ever."""
    if isinstance(value, ast.Call):
        name = (
            value.func.attr
            if isinstance(value.func, ast.Attribute)
            else getattr(value.func, "id", "")
        )
        return name in CONSTANT
    if isinstance(value, ast.Tuple):
        return all(fixed(part) for part in value.elts)
    return not isinstance(value, MUTABLE)


def cached(function: ast.FunctionDef) -> bool:
    return any("cache" in ast.unparse(decorator) for decorator in function.decorator_list)


def nothing(returns: ast.expr | None) -> bool:
    return returns is None or ast.unparse(returns) == "None"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_keeps_what_can_change(path):
    assert set(changeable(path.read_text(encoding="utf-8"))) <= EFFECTS


@pytest.mark.parametrize(
    "module",
    [
        "told: list[str] = []",
        "rows = {}",
        "doors = Doors()",
        "kept = (1, [2])",
        "known = {name for name in ()}",
        "class Held:\n    rows = []",
        "count = 0\ndef tell():\n    global count\n    count += 1",
        "@cache\ndef close(folder: str) -> None:\n    print(folder)",
    ],
)
def test_what_can_change_is_found(module):
    assert changeable(module)
