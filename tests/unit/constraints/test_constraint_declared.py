"""Constraints as a spec declares them."""

from pathlib import Path

import pytest

import cloister.constraints as public
from cloister.constraints import (
    ConstraintDeclaration,
    DenialConstraint,
    constraints_of,
    declaration_of,
    parse_denial,
)
from cloister.errors import ConstraintError, StorageError

NAMES = ("education", "education-num", "age", "my col")


def read(*declarations: dict[str, object], folder: Path = Path()) -> tuple[DenialConstraint, ...]:
    return constraints_of(
        [ConstraintDeclaration.model_validate(d) for d in declarations], NAMES, folder
    )


def test_each_form_and_its_names(tmp_path: Path) -> None:
    lines = "\ufeff# comment\r\nt1&t2&EQ(t1.age,t2.age)\r\n\r\nt1&LT(t1.age,'18')"
    (tmp_path / "adult.ic").write_text(lines, encoding="utf-8", newline="")
    constraints = read(
        {"fd": "education -> education-num"},
        {"fd": "education -> age, `my col`", "name": "edu", "soft": True},
        {"key": ["age", "my col"], "name": "k"},
        {"deny": "t.age < 18"},
        {"file": "adult.ic", "soft": True},
        folder=tmp_path,
    )
    assert [(c.name, c.hard, c.arity) for c in constraints] == [
        ("constraint_1", True, 2),
        ("edu_1", False, 2),
        ("edu_2", False, 2),
        ("k", True, 2),
        ("constraint_4", True, 1),
        ("adult_1", False, 2),
        ("adult_2", False, 1),
    ]
    assert constraints_of([declaration_of(c) for c in constraints], NAMES, tmp_path) == constraints


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("t1.age = t2.age and t1.education != t2.education", "fd"),
        ("t1.education != t2.education", "deny"),
        ("t1.age = t2.age and t1.education = t2.education", "key"),
        ("t1.age < t2.age", "deny"),
    ],
)
def test_the_most_telling_form_is_declared(text: str, form: str) -> None:
    assert getattr(declaration_of(parse_denial(text, "r")), form) is not None


def test_a_second_name_and_an_unknown_attribute_are_refused() -> None:
    with pytest.raises(ConstraintError, match="'k': two constraints"):
        read({"key": ["age"], "name": "k"}, {"fd": "age -> education", "name": "k"})
    said = "constraint 'k': no attribute 'educaton'; did you mean 'education'"
    with pytest.raises(ConstraintError, match=said):
        read({"key": ["educaton"], "name": "k"})
    with pytest.raises(ConstraintError, match="no attribute 'zzz'; declare it"):
        read({"key": ["zzz"]})


def test_errors_of_a_file_name_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "bad.ic").write_text("\nt1&t2&EQ(t1.age,t2.age)\nnonsense\n")
    with pytest.raises(ConstraintError, match=r"bad\.ic, line 3"):
        read({"file": "bad.ic"}, folder=tmp_path)
    with pytest.raises(StorageError, match=r"gone\.ic"):
        read({"file": "gone.ic"}, folder=tmp_path)
    (tmp_path / "latin.ic").write_bytes(b"t1&EQ(t1.age,'\xe9')")
    with pytest.raises(StorageError, match=r"latin\.ic"):
        read({"file": "latin.ic"}, folder=tmp_path)


def test_public_names_exist_and_are_documented() -> None:
    assert sorted(public.__all__) == public.__all__
    assert all(getattr(public, name).__doc__ for name in public.__all__ if name != "Constant")
