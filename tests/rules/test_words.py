"""A variable has its noun: names that could stand for anything are counted, and not to grow."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import cloister

ROOT = Path(cloister.__file__).parent.parent
PACKAGES = ("cloister", "models", "tasks", "flows")
EMPTY = {"own", "found", "place", "at", "held", "told", "kept", "asked", "other", "others"}
"""Names that say nothing of what they hold."""

MOST_USES = 43
"""Most uses of such names: stored fields, options, and the other operand of an operation."""

FORMER = ("handicap", "emphasis", "lawful", "gives_")
"""Parts of names for which the field has others: penalty, weight, feasible, ``supports_``."""


def names_of(tree):
    """Names of variables, arguments, functions and attributes (``at`` is a library's)."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.FunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.keyword(arg=name):
                yield name
            case ast.Attribute(attr=name) if name != "at":
                yield name


@cache
def names_by_module():
    packages = (ROOT / name for name in PACKAGES)
    modules = [path for folder in packages for path in folder.rglob("*.py")]
    trees = {path.resolve(): ast.parse(path.read_text(encoding="utf-8")) for path in modules}
    return [(str(path.relative_to(ROOT)), list(names_of(tree))) for path, tree in trees.items()]


def uses_of_empty_names():
    return Counter(
        {path: sum(name in EMPTY for name in names) for path, names in names_by_module()}
    )


def test_variables_have_their_noun():
    uses = uses_of_empty_names()
    worst = ", ".join(f"{path} {count}" for path, count in uses.most_common(5))
    assert uses.total() <= MOST_USES, f"name what they hold; most are in {worst}"


def test_names_are_those_of_the_field():
    former = {
        f"{path}: {name}"
        for path, names in names_by_module()
        for name in names
        if name and any(word in name.lower() for word in FORMER)
    }
    assert not former


def test_all_names_are_counted():
    code = (
        "def f(own, *, at=1):\n    found = [place for place in own.held]\n    return g(told=found)"
    )
    counted = Counter(name for name in names_of(ast.parse(code)) if name in EMPTY)
    assert counted == {"own": 2, "at": 1, "found": 2, "place": 2, "held": 1, "told": 1}


def undocumented(trees):
    """Public names without a docstring, and methods that no class of the packages documents."""
    missing, documented = set(), set()
    for tree in trees:
        for scope in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
            owner = getattr(scope, "name", "")
            for node in scope.body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                    name = f"{'.' if owner else ''}{node.name}"
                    if ast.get_docstring(node):
                        documented.add(name)
                    elif not owner.startswith("_"):
                        missing.add(name)
    return {name for name in missing if name not in documented or not name.startswith(".")}


def test_public_names_are_documented():
    paths = {path.resolve() for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert not undocumented(ast.parse(path.read_text(encoding="utf-8")) for path in paths)


def test_a_method_is_documented_where_it_is_declared():
    declared = "class _A:\n    def f(self):\n        'Says.'\n"
    code = f"{declared}class B:\n    'A class.'\n    def f(self): ..."
    assert not undocumented([ast.parse(code)])
    assert undocumented([ast.parse(code.replace("'Says.'", "..."))]) == {".f"}
