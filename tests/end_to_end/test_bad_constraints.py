"""Constraints that cannot be kept or read: found from public inputs alone, and named.

Nothing is opened or spent.
"""

import pytest

from cloister.flows.cli.app import run


@pytest.fixture
def refused(place, capsys):
    """Refuse a release under other constraints; what was said."""

    def under(*constraints: str) -> str:
        text = place.spec.read_text(encoding="utf-8")
        before, after = text.index("constraints:"), text.index("release:")
        lines = "".join(f"  - {constraint}\n" for constraint in constraints)
        place.spec.write_text(
            f"{text[:before]}constraints:\n{lines}{text[after:]}", encoding="utf-8"
        )
        place.data.unlink()
        code = run(["release", str(place.spec), "--out", str(place.folder / "out")])
        said = capsys.readouterr().err
        assert code == 2, said
        assert "Traceback" not in said
        assert not (place.folder / "out").exists()
        assert not place.home.folder.exists()
        return said

    return under


def test_two_rules_that_leave_no_row(refused):
    said = refused(
        '{name: fine, fd: "`home region` -> capital"}',
        '{name: low, deny: "t.age < 50"}',
        '{name: paid, deny: "t.income > 150"}',
        '{name: high, deny: "t.age >= 50"}',
    )
    assert "'low', 'high'" in said
    assert "'fine'" not in said and "'paid'" not in said


def test_the_smallest_set_is_named_where_no_two_rules_conflict(refused):
    said = refused(
        "{name: north, deny: \"t.`home region` = 'north'\"}",
        "{name: south, deny: \"t.`home region` = 'south'\"}",
        "{name: young, deny: \"t.`home region` = 'east' and t.age < 40\"}",
        '{name: rich, deny: "t.income > 100"}',
        '{name: old, deny: "t.age >= 40"}',
    )
    assert "'north', 'south', 'young', 'old'" in said
    assert "'rich'" not in said


def test_a_key_with_fewer_values_than_rows(refused):
    said = refused("{name: one-each, key: [home region, member]}")
    assert "'one-each'" in said and "6 values" in said


def test_a_constraint_on_an_unknown_column(refused):
    said = refused('{name: typo, fd: "`home region` -> capitol"}')
    assert "'typo'" in said and "'capitol'" in said and "did you mean 'capital'" in said


@pytest.mark.parametrize("soft", ["", ", soft: true"])
def test_an_order_of_unordered_values(refused, soft):
    said = refused(f'{{name: rank, deny: "t1.capital < t2.capital and t1.age > t2.age"{soft}}}')
    assert "'rank'" in said and "'capital'" in said and "declare it ordinal" in said


def test_a_constant_outside_its_column(refused):
    said = refused("{name: odd, deny: \"t.capital = 'Q'\"}")
    assert "'odd'" in said and "'capital'" in said
