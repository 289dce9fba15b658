"""A method is named in its folder and in the registry: shared rooms know none of them.

Identifiers and texts are searched, docstrings are not: a paper may be cited as a source.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloister.models.registry import FORMER, METHODS

ROOT = Path(__file__).parents[2]
ROOMS = (
    *("cloister/schema", "cloister/constraints", "cloister/privacy", "cloister/evaluation"),
    *("tasks", "flows", "models/core", "models/sampling", "models/feasible_sets"),
    *("models/soft_constraints", "models/transforms", "models/planning.py", "models/quality.py"),
)
FOLDERS = re.compile(r"kamino|dpview|copula|deniab", re.IGNORECASE)
"""Coined words, which mean a method wherever they stand."""

NAMES = METHODS.keys() | FORMER.keys()
OF_A_METHOD = re.compile(rf"\b(?:method|--method)s? ({'|'.join(map(re.escape, NAMES))})\b")

ALLOWED = frozenset({"cloister"})
"""The package, which was the name of a method once."""


def docstrings(tree: ast.AST) -> set[int]:
    """The identities of all texts that document something."""
    bodies = (node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list))
    return {
        id(statement.value)
        for body in bodies
        for statement in body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }


def words_of(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """The lines of identifiers and texts, and which are texts."""
    documents = docstrings(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in documents:
                yield line, node.value, True
            continue
        for field in ("id", "attr", "name", "arg", "module", "asname"):
            if isinstance(word := getattr(node, field, None), str):
                yield line, word, False


def names_a_method(word: str, is_text: bool) -> bool:
    """Whether a word holds a coined name, or a text is the name of a method or speaks of one."""
    if FOLDERS.search(word):
        return True
    return is_text and (word in NAMES - ALLOWED or OF_A_METHOD.search(word) is not None)


def modules_of(room: Path) -> list[Path]:
    return sorted(room.rglob("*.py")) if room.is_dir() else [room]


@pytest.mark.parametrize("room", ROOMS)
def test_no_method_is_named(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word[:60]}"
        for path in modules_of(ROOT / room)
        for line, word, is_text in words_of(ast.parse(path.read_text(encoding="utf-8")))
        if names_a_method(word, is_text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('x = "dpview" in method', True),
        ("from cloister.models.kamino import plan", True),
        ("task.deniability", True),
        ('print("only method mixture does that")', True),
        ('method == "independent"', True),
        ('"""Kamino, equation 1."""', False),
        ('print("independent rows of a mixture")', False),
        ("NormalMixture()", False),
    ],
)
def test_what_names_a_method(line: str, named: bool) -> None:
    assert any(names_a_method(word, text) for _, word, text in words_of(ast.parse(line))) == named


def test_templates_name_none() -> None:
    for path in (ROOT / "cloister").rglob("*.html"):
        assert not FOLDERS.search(path.read_text(encoding="utf-8")), path
