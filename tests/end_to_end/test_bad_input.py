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
    change(pd.read_csv(place.data)).to_csv(place.data, index=False)


def test_value_outside_its_domain(place, inside, unspent):
    def change(frame):
        frame.loc[41, "home region"] = CANARY
        return frame

    damaged(place, change)
    said = inside()
    assert "'home region'" in said
    assert "(row 42)" in said


def test_no_rows(place, inside, unspent):
    damaged(place, lambda frame: frame.head(0))
    assert "no rows" in inside()


def test_a_parquet_file_of_ten_times_the_declared_rows_is_refused_unread(place, inside, unspent):
    """Its pages are damaged: only the footer can be read."""
    table = place.data.with_suffix(".parquet")
    pd.concat([pd.read_csv(place.data)] * 11).to_parquet(table, index=False)
    content = bytearray(table.read_bytes())
    content[4:200] = bytes(196)
    table.write_bytes(content)
    place.edit(str(place.data), str(table))
    assert "more than 10 times the declared 2,000 rows" in inside()


def columns(change):
    """A change of the table by pandas."""
    return lambda place: change(pd.read_csv(place.data)).to_csv(place.data, index=False)


def another_age(place) -> None:
    lines = place.data.read_text().splitlines()
    lines = ["age," + lines[0], *("30," + line for line in lines[1:])]
    place.data.write_text("\n".join(lines) + "\n")


def written(old: str, new: str):
    """A change of the spec."""
    return lambda place: place.edit(old, new)


RULE = 'deny: "t.age < 20 and t.income > 0"'
TWO = '  - {name: old, deny: "t.age >= 20"}\n  - {name: baby, deny: "t.age < 20"}\nrelease:'
BINS = "max: 80, bins: 16, provenance: "
OF_RELEASE = "epsilon: 1, delta: "
SPOILT = {
    "unknown column": (columns(lambda f: f.assign(shoe=CANARY)), ["'shoe' are not declared"]),
    "missing column": (columns(lambda f: f.drop(columns="age")), ["'age' are missing"]),
    "column under another name": (
        columns(lambda f: f.rename(columns={"home region": "Home_Region"})),
        [
            "'home region' are missing",
            "is 'Home_Region' the declared 'home region'?",
            "this run charged nothing\n",
        ],
    ),
    "empty file": (lambda place: place.data.write_text(""), ["empty"]),
    "wrong delimiter": (
        lambda place: pd.read_csv(place.data).to_csv(place.data, index=False, sep=";"),
        ["semicolon", "source.delimiter"],
    ),
    "duplicate column": (another_age, ["'age'", "more than once"]),
    "missing data": (lambda place: place.data.unlink(), ["clubs.csv"]),
    "missing spec": (lambda place: place.spec.unlink(), ["clubs.yaml"]),
    "impossible constraint": (written(RULE, 'deny: "t.age >= 18"'), ["'young'"]),
    "contradicting constraints": (written("release:", TWO), ["'old'", "'baby'"]),
    "constraint on an unknown attribute": (
        written("t.income > 0", "t.incme > 0"),
        ["did you mean 'income'"],
    ),
    "bound that is still data-derived": (
        written(f"{BINS}form", f"{BINS}data-derived"),
        ["'age'", "data-derived"],
    ),
    "types that nobody has confirmed": (
        written("attributes:", "unconfirmed: [types]\nattributes:"),
        ["unconfirmed: types of attributes", "delete the word"],
    ),
    "unknown key": (written("min: 18", "minimum: 18"), ["line 9", "minimum"]),
    "name that no file can have": (
        written("name: clubs", f"name: {'c' * 300}"),
        ["at most 100 characters"],
    ),
    "delta 0": (written(f"{OF_RELEASE}1e-6", f"{OF_RELEASE}0"), ["delta"]),
    "delta 5e-4": (written(f"{OF_RELEASE}1e-6", f"{OF_RELEASE}5e-4"), ["delta"]),
    "delta nan": (written(f"{OF_RELEASE}1e-6", f"{OF_RELEASE}.nan"), ["delta"]),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_table_or_spec_that_cannot_be(place, refused, untouched, kind):
    spoil, said = SPOILT[kind]
    spoil(place)
    told = refused()
    assert all(words in told for words in said)


OPTIONS = {
    "epsilon": ["0", "-1", "nan", "inf", "1e400", "one", "0x10", "1/0", ""],
    "delta": ["0", "-1e-6", "nan", "inf", "0.0005", "1", "small"],
    "rows": ["-1", "1000000000000", "0"],
    "seed-sampling": ["-1", str(2**63), str(2**128), "9" * 400],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OPTIONS.items() for value in values]
)
def test_an_option_that_cannot_be(refused, untouched, name, value):
    assert name.partition("-")[0] in refused(f"--{name}={value}")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--epsilon=0.0001", "too small"),
        ("--epsilon=1e-300", "at least"),
        ("--epsilon=1e-10", "at least"),
        ("--method=", "kamino"),
        ("--method=magic", "kamino"),
        ("--method=" + os.fsdecode(b"\xff"), "UTF-8"),
    ],
)
def test_what_buys_or_names_nothing(refused, untouched, option, said):
    assert said in refused(option)


def test_more_than_the_declared_budget(refused, prefect_server):
    said = refused("--epsilon", "5")
    assert "5" in said
    assert "4" in said


def test_data_that_is_a_pipe(place, refused, untouched):
    os.mkfifo(place.folder / "pipe")
    assert "is a regular file" in refused("--data", str(place.folder / "pipe"))


def test_data_that_is_a_folder_without_data(place, refused, untouched):
    assert "no *.parquet is in it" in refused("--data", str(place.folder))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_data(place, refused, untouched):
    place.data.chmod(0)
    assert "permissions" in refused()
