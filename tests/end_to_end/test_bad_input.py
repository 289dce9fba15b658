"""Bad input: one clear error without data, exit code 2, nothing written, nothing spent."""

import json
import os
import re
from collections.abc import Iterator

import pandas as pd
import pytest

from cloister.flows.cli.app import run
from cloister.tasks.ledger.access import existing_ledger

CANARY = "quokka-417"
PROGRESS = re.compile(r"\d\d:\d\d:\d\d ")


@pytest.fixture
def refused(place, out, capsys):
    """Run a release that must be refused; what it said."""

    def release(*options: str) -> str:
        code = run(["release", str(place.spec), "--out", str(out), *options])
        said = capsys.readouterr()
        assert code == 2, said.err
        before, error, rest = said.err.partition("error: ")
        assert error
        assert all(PROGRESS.match(line) for line in before.splitlines())
        assert "Traceback" not in said.err
        assert CANARY not in said.err + said.out
        assert not out.exists()
        return error + rest

    return release


@pytest.fixture
def inside(place, refused):
    """Run a release whose data must be refused.

    What the internal report says, and the error does not.
    """

    def release() -> str:
        said = refused()
        (report,) = (place.home.folder / "releases").glob("*/internal/validation.json")
        assert str(report) in said
        problems = json.loads(report.read_text())["problems"]
        assert not any(problem in said for problem in problems)
        return "\n".join(problems)

    return release


@pytest.fixture
def unspent(place, prefect_server, capsys) -> Iterator[None]:
    """Refused after reading the data: the reservation was given back; the home holds no data."""
    yield
    ledger = existing_ledger(place.home)
    assert ledger is not None
    assert [release.state for release in ledger.releases()] == ["released_back"]
    capsys.readouterr()
    assert run(["ledger", "list"]) == 0
    assert "refunded" in capsys.readouterr().out
    status = ledger.budget("clubs", "row")
    assert (status.spent, status.reserved, status.left) == (0, 0, 4)
    assert all(
        CANARY.encode() not in path.read_bytes()
        for path in place.home.folder.rglob("*")
        if path.is_file()
    )


def damaged(place, change) -> None:
    frame = pd.read_csv(place.data)
    change(frame).to_csv(place.data, index=False)


def test_unknown_column(place, refused, untouched):
    damaged(place, lambda frame: frame.assign(shoe=CANARY))
    assert "'shoe' are not declared" in refused()


def test_missing_column(place, refused, untouched):
    damaged(place, lambda frame: frame.drop(columns="age"))
    assert "'age' are missing" in refused()


def test_column_under_another_name(place, refused, untouched):
    damaged(place, lambda frame: frame.rename(columns={"home region": "Home_Region"}))
    said = refused()
    assert "'home region' are missing" in said
    assert "is 'Home_Region' the declared 'home region'?" in said
    assert said.endswith("this run charged nothing\n")


def test_value_outside_its_domain(place, inside, unspent):
    def change(frame):
        frame.loc[41, "home region"] = CANARY
        return frame

    damaged(place, change)
    said = inside()
    assert "'home region'" in said
    assert "(row 42)" in said


def test_empty_file(place, refused, untouched):
    place.data.write_text("")
    assert "empty" in refused()


def test_no_rows(place, inside, unspent):
    damaged(place, lambda frame: frame.head(0))
    assert "no rows" in inside()


def test_a_parquet_file_of_ten_times_the_declared_rows_is_refused_unread(place, inside, unspent):
    """Its pages are damaged: only the footer can be read."""
    table = place.data.with_suffix(".parquet")
    frame = pd.concat([pd.read_csv(place.data)] * 11)
    frame.to_parquet(table, index=False)
    content = bytearray(table.read_bytes())
    content[4:200] = bytes(196)
    table.write_bytes(content)
    place.edit(str(place.data), str(table))
    assert "more than 10 times the declared 2,000 rows" in inside()


def test_wrong_delimiter(place, refused, untouched):
    pd.read_csv(place.data).to_csv(place.data, index=False, sep=";")
    said = refused()
    assert "semicolon" in said
    assert "source.delimiter" in said


def test_duplicate_column(place, refused, untouched):
    lines = place.data.read_text().splitlines()
    place.data.write_text(
        "\n".join(["age," + lines[0], *("30," + line for line in lines[1:])]) + "\n"
    )
    said = refused()
    assert "'age'" in said
    assert "more than once" in said


def test_impossible_constraint(place, refused, untouched):
    place.edit('deny: "t.age < 20 and t.income > 0"', 'deny: "t.age >= 18"')
    assert "'young'" in refused()


def test_contradicting_constraints(place, refused, untouched):
    place.edit(
        "release:",
        '  - {name: old, deny: "t.age >= 20"}\n  - {name: baby, deny: "t.age < 20"}\nrelease:',
    )
    said = refused()
    assert "'old'" in said
    assert "'baby'" in said


def test_constraint_on_an_unknown_attribute(place, refused, untouched):
    place.edit("t.income > 0", "t.incme > 0")
    assert "did you mean 'income'" in refused()


def test_bound_that_is_still_data_derived(place, refused, untouched):
    place.edit("max: 80, bins: 16, provenance: form", "max: 80, bins: 16, provenance: data-derived")
    said = refused()
    assert "'age'" in said
    assert "data-derived" in said


def test_types_that_nobody_has_confirmed(place, refused, untouched):
    place.edit("attributes:", "unconfirmed: [types]\nattributes:")
    said = refused()
    assert "unconfirmed: types of attributes" in said
    assert "names of columns" not in said
    assert "delete the word" in said


def test_spec_with_an_unknown_key(place, refused, untouched):
    place.edit("min: 18", "minimum: 18")
    said = refused()
    assert "line 9" in said
    assert "minimum" in said


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "inf", "1e400", "one", "0x10", "1/0", ""])
def test_epsilon_that_cannot_be(refused, untouched, epsilon):
    assert "epsilon" in refused(f"--epsilon={epsilon}")


@pytest.mark.parametrize("delta", ["0", "-1e-6", "nan", "inf", "0.0005", "1", "small"])
def test_delta_that_cannot_be(refused, untouched, delta):
    assert "delta" in refused(f"--delta={delta}")


@pytest.mark.parametrize("delta", ["0", "5e-4", ".nan"])
def test_delta_of_the_spec_that_cannot_be(place, refused, untouched, delta):
    place.edit("epsilon: 1, delta: 1e-6", f"epsilon: 1, delta: {delta}")
    assert "delta" in refused()


def test_budget_too_small_for_any_plan(refused, untouched):
    assert "too small" in refused("--epsilon", "0.0001")


def test_more_than_the_declared_budget(refused, prefect_server):
    said = refused("--epsilon", "5")
    assert "5" in said
    assert "4" in said


@pytest.mark.parametrize("epsilon", ["1e-300", "1e-10"])
def test_epsilon_that_buys_nothing(refused, untouched, epsilon):
    assert "at least" in refused(f"--epsilon={epsilon}")


@pytest.mark.parametrize("seed", ["-1", str(2**63), str(2**128), "9" * 400])
def test_seed_that_cannot_be(place, untouched, seed, capsys):
    assert run(["release", str(place.spec), f"--seed-sampling={seed}"]) == 2
    assert "seed" in capsys.readouterr().err


@pytest.mark.parametrize("rows", ["-1", "1000000000000"])
def test_rows_that_cannot_be(refused, untouched, rows):
    assert "rows" in refused(f"--rows={rows}")


def test_method_without_a_name(refused, untouched):
    assert "kamino" in refused("--method", "")


def test_name_that_no_file_can_have(place, refused, untouched):
    place.edit("name: clubs", f"name: {'c' * 300}")
    assert "at most 100 characters" in refused()


def test_words_that_are_not_utf8(refused, untouched):
    assert "UTF-8" in refused("--method", os.fsdecode(b"\xff"))


def test_data_that_is_a_pipe(place, refused, untouched):
    os.mkfifo(place.folder / "pipe")
    assert "is a regular file" in refused("--data", str(place.folder / "pipe"))


def test_no_rows_asked(refused, untouched):
    assert "rows" in refused("--rows", "0")


def test_unknown_method(refused, untouched):
    assert "kamino" in refused("--method", "magic")


def test_missing_data(place, refused, untouched):
    place.data.unlink()
    assert str(place.data) in refused()


def test_data_that_is_a_folder_without_data(place, refused, untouched):
    assert "no *.parquet is in it" in refused("--data", str(place.folder))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_data(place, refused, untouched):
    place.data.chmod(0)
    assert "permissions" in refused()


def test_missing_spec(place, refused, untouched):
    place.spec.unlink()
    assert str(place.spec) in refused()
