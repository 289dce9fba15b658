"""What of a source an account is bound to: rows, and the cells of units and blocks alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres_schemas import schema

from cloister.errors import DataError, InputError
from cloister.privacy.ledger import Account
from cloister.schema.sources.csv_files import names_of_columns
from cloister.schema.sources.databases import connect
from cloister.schema.sources.reading import bound_reading, places_of, reading_of
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import (
    account_of,
    bound_account,
    open_ledger,
    opening_of,
    with_all_places,
)
from cloister.tasks.ledger.budgets import reread_account
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

STAYS = """
name: stays
source: {path: stays.csv, header: [who, admitted, left, pay]}
privacy: {unit: {key: who, max_rows: 4}, relation: add_remove,
  block: {column: admitted, per: month}, rows: {public: 100},
  budget: {epsilon: 2, delta: 0, per: ever}}
attributes:
  who: {type: text, pattern: "P{0001..9999}"}
  admitted: {type: date, min: 2026-01-01, max: 2026-12-31, format: "%d.%m.%Y"}
  left: {type: date, min: 2026-01-01, max: 2026-12-31, format: "%d.%m.%Y"}
  pay: {type: float, min: 0, max: 9}
release: {method: independent, epsilon: 1, delta: 0}
"""
TABLES = """
name: clinic
privacy: {unit: {table: patients}, relation: add_remove, rows: {public: 100},
  budget: {epsilon: 2, delta: 0, per: ever}}
tables:
  wards: {source: {path: wards.csv}, rows: {public: 9}, key: ward,
    attributes: {ward: {type: text, pattern: "{1..9}"}, beds: {type: integer, min: 0, max: 9}}}
  patients: {source: {path: patients.csv}, key: id,
    attributes: {id: {type: text, pattern: "{1..999}"}, age: {type: integer, min: 0, max: 99}}}
  visits: {source: {path: visits.csv}, rows: {public: 200}, key: number,
    references: {patient: {table: patients, max_rows: 4}, ward: {table: wards, max_rows: 99}},
    attributes: {number: {type: text, pattern: "{1..999}"},
      patient: {type: text, pattern: "{1..999}"}, ward: {type: text, pattern: "{1..9}"}}}
release: {epsilon: 1, delta: 0, method: relational}
"""


@pytest.fixture
def reading(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(text: str, *changes: tuple[str, str]) -> dict[str, str]:
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return reading_of(spec_of(text, tmp_path))

    return read


def spec_of(text: str, folder: Path) -> Spec:
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    return load_spec(folder / "spec.yaml")


OTHERWISE = [
    ("header: [who, admitted, left, pay]", "header: [who, left, admitted, pay]"),
    ("header: [who, admitted, left, pay]", "header: [admitted, who, left, pay]"),
    (", header: [who, admitted, left, pay]", ""),
    ("{path: stays.csv,", "{path: stays.csv, delimiter: ';',"),
    ("{path: stays.csv,", "{path: stays.csv, encoding: utf-16-le,"),
    ("{path: stays.csv,", "{path: stays.csv, missing: ['', P0001],"),
    ('admitted: {type: date, min: 2026-01-01, max: 2026-12-31, format: "%d.%m.%Y"}',
     'admitted: {type: date, min: 2026-01-01, max: 2026-12-31, format: "%m.%d.%Y"}'),
    ('who: {type: text, pattern: "P{0001..9999}"}', "who: {type: integer, min: 0, max: 9}"),
]  # fmt: skip
ALIKE = [
    ("header: [who, admitted, left, pay]", "header: [who, admitted, pay, left]"),
    ("pay: {type: float, min: 0, max: 9}", "pay: {type: integer, min: 0, max: 99, format: '%d m'}"),
    ('left: {type: date, min: 2026-01-01, max: 2026-12-31, format: "%d.%m.%Y"}',
     'left: {type: date, min: 2026-01-01, max: 2026-12-31, format: "%m.%d.%Y"}'),
    ("P{0001..9999}", "P{0001..4999}"),
    ("name: stays", "name: stays-2"),
]  # fmt: skip


@pytest.mark.parametrize("change", OTHERWISE, ids=[f"{number}" for number in range(len(OTHERWISE))])
def test_what_gives_other_rows_units_or_blocks_is_another_reading(reading, change):
    account = Account("stays", "key:who", "add_remove", reading=reading(STAYS))
    assert account.contradictions(reading(STAYS)) == {}
    assert account.contradictions(reading(STAYS, change))


@pytest.mark.parametrize("change", ALIKE, ids=[f"{number}" for number in range(len(ALIKE))])
def test_other_columns_and_domains_are_no_other_reading(reading, change):
    assert reading(STAYS) == reading(STAYS, change)


def test_tables_are_bound_by_what_leads_to_the_unit(reading, tmp_path):
    usual = reading(TABLES)
    place = f"place {tmp_path / 'patients.csv'}"
    assert usual["patients: id"] == "from column 'id' as text"
    assert usual["visits: patient"] == "from column 'patient' as text, a row of patients"
    assert usual[place] == "as table 'patients'"
    assert not any("ward" in name.partition(": ")[2] for name in usual)
    exchanged = ("path: patients.csv", "path: x.csv"), ("path: visits.csv", "path: patients.csv")
    assert reading(TABLES, *exchanged)[place] == "as table 'visits'"
    renamed = reading(TABLES, ("visits: {source", "stays: {source"))
    assert renamed[f"place {tmp_path / 'visits.csv'}"] == "as table 'stays'"


OTHER_UNITS = [
    [("references: {patient:", "references: {other:")],
    [("key: id,", "key: pid,")],
    [("references: {patient: {table: patients, max_rows: 4}, ", "references: {")],
]


@pytest.mark.parametrize("changes", OTHER_UNITS, ids=["reference", "key", "none"])
def test_units_of_several_tables_are_told_by_the_same_columns(reading, changes):
    """Each name has facts of its own: another column contradicts none of those of the first."""
    more = [
        ('ward: {type: text, pattern: "{1..9}"}}}',
         'ward: {type: text, pattern: "{1..9}"}, other: {type: text, pattern: "{1..999}"}}}'),
        ('id: {type: text, pattern: "{1..999}"}, age',
         'id: {type: text, pattern: "{1..999}"}, pid: {type: text, pattern: "{1..999}"}, age'),
    ]  # fmt: skip
    account = Account("clinic", "table:patients", "add_remove", reading=reading(TABLES, *more))
    assert account.reading["visits: units"] == "by patient"
    assert account.contradictions(reading(TABLES, *more, *changes))
    bills = """  bills: {source: {path: bills.csv}, rows: {public: 300},
    references: {visit: {table: visits, max_rows: 3}},
    attributes: {visit: {type: text, pattern: "{1..999}"}}}
release:"""
    assert not account.contradictions(reading(TABLES, *more, ("release:", bills)))


def test_a_table_keeps_its_name_by_whatever_name_its_file_is_read(reading, tmp_path):
    (tmp_path / "visits.csv").write_text("number\n")
    (tmp_path / "link.csv").hardlink_to(tmp_path / "visits.csv")
    usual = reading(TABLES)
    account = Account("clinic", "table:patients", "add_remove", reading=usual)
    for path in ("link.csv", "vis*.csv"):
        renamed = ("visits: {source: {path: visits.csv", f"stays: {{source: {{path: {path}")
        other = bound_reading(replace(account, reading=reading(TABLES, renamed)), account)
        assert account.contradictions(other) == {
            f"place {tmp_path / 'visits.csv'}": ("as table 'visits'", "as table 'stays'")
        }
    assert bound_reading(account, account) == usual


@pytest.mark.parametrize("form", ["", ", format: csv", ", format: parquet"])
def test_files_of_a_pattern_are_bound_as_their_own_endings_are_read(reading, tmp_path, form):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part-1.csv").write_text("who;admitted\n")
    several = ("path: stays.csv", f"path: data/part-*{form}")
    account = Account("stays", "key:who", "add_remove", reading=reading(STAYS, several))
    other = (f"part-*{form},", f"part-*{form}, delimiter: ';',")
    assert account.contradictions(reading(STAYS, several, other))


def test_a_stored_table_has_names_and_rows_of_its_own(reading):
    stored = ("path: stays.csv, header: [who, admitted, left, pay]", "path: stays.parquet")
    assert reading(STAYS, stored) == {
        "who": "from column 'who' as text",
        "admitted": "from column 'admitted' as date, format %d.%m.%Y",
    }


def test_names_are_not_declared_for_a_file_that_has_them(tmp_path):
    """Else two names could be exchanged, and the line that holds them would count as a row."""
    spec, path = spec_of(STAYS, tmp_path), tmp_path / "stays.csv"
    path.write_text("who,left,admitted,pay\nP0001,1.1.2026,2.1.2026,3\n")
    with pytest.raises(DataError, match=r"holds the names that source.header declares"):
        names_of_columns(path, spec.source)
    path.write_text("P0001,1.1.2026,2.1.2026,3\n")
    assert names_of_columns(path, spec.source) == list(spec.source.header or ())


ROWS = """
name: visits
source: {path: visits.csv}
privacy: {unit: row, relation: add_remove, rows: {public: 100},
  budget: {epsilon: 2, delta: 0, per: ever}}
attributes: {number: {type: text, pattern: "{1..999}"}, pay: {type: float, min: 0, max: 9}}
release: {method: independent, epsilon: 1, delta: 0}
"""


def several_of_rows() -> str:
    """The tables, of which any row is a unit."""
    text = TABLES.replace("unit: {table: patients}", "unit: row")
    text = text.replace("wards.csv}, rows: {public: 9}", "wards.csv}")
    return text.replace("patients.csv}", "patients.csv}, rows: {public: 100}")


@pytest.mark.parametrize("first_alone", [True, False])
def test_a_table_alone_and_one_of_several_is_read_alike(tmp_path, monkeypatch, first_alone):
    """Rows are the units of both, and each other delimiter would make other rows of one file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text("number\n")
    (tmp_path / "link.csv").hardlink_to(tmp_path / "visits.csv")

    def account(alone: bool, *changes: tuple[str, str]) -> Account:
        text = ROWS if alone else several_of_rows()
        for old, new in changes:
            text = text.replace(old, new)
        spec = spec_of(text, tmp_path)
        return Account("visits", "row", "add_remove", places_of(spec), reading=reading_of(spec))

    def contradicted(pinned: Account, other: Account) -> dict[str, tuple[str, str]]:
        return pinned.contradictions(bound_reading(other, pinned))

    pinned, source = account(first_alone), "source: {path: visits.csv"
    for path in ("visits.csv", "link.csv", "vis*.csv"):
        other = f"source: {{path: {path}"
        assert contradicted(pinned, account(not first_alone, (source, other))) == {}
        told = contradicted(pinned, account(not first_alone, (source, f"{other}, delimiter: ';'")))
        assert list(told) == ["rows" if first_alone else "visits: rows"]
        assert ["','" in fact for fact in told.popitem()[1]] == [True, False]
    elsewhere = account(not first_alone, (source, "source: {path: x.csv, delimiter: ';'"))
    assert contradicted(pinned, elsewhere) == {}


def test_what_two_specs_pinned_is_read_by_both_again(tmp_path, monkeypatch):
    """The account of a table alone goes on with several, of which another is read otherwise."""
    monkeypatch.chdir(tmp_path)
    alone = spec_of(ROWS, tmp_path)
    first = Account("visits", "row", "add_remove", places_of(alone), reading=reading_of(alone))
    semicolons = several_of_rows().replace("patients.csv}", "patients.csv, delimiter: ';'}")
    spec = spec_of(semicolons, tmp_path)
    several = replace(first, places=places_of(spec), reading=reading_of(spec))
    reading = {**first.reading, **bound_reading(several, first)}
    account = replace(first, places=(*first.places, *several.places), reading=reading)
    for again in (several, first):
        assert not account.contradictions(bound_reading(again, account))


def test_a_table_alone_is_read_otherwise_by_several_once_an_officer_moves_its_account(tmp_path):
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home")})
    ledger = open_ledger(home)
    ledger.open_account(account_of(spec_of(ROWS, tmp_path), None, home), "officer", "why")
    other = several_of_rows().replace("name: clinic", "name: clinic\naccount: visits")
    other = other.replace("visits.csv}", "visits.csv, delimiter: ';'}")
    account = bound_account(ledger.books(), account_of(spec_of(other, tmp_path), None, home))
    with pytest.raises(InputError, match=r"rows from utf-8 separated by ',', .* by ';', .*reread"):
        ledger.open_account(account, "flow", "why")
    reread_account(home, tmp_path / "spec.yaml", "officer", "semicolons from here on")
    ledger.open_account(bound_account(ledger.books(), account), "flow", "why")
    assert len(ledger.books().accounts["visits"].moves) == 1
    assert ledger.verify() == []


def test_a_table_of_postgresql_keeps_its_name_by_whatever_name_it_is_read(tmp_path):
    """By its schema too, which the server is asked for: else visits would count as patients."""
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home")})
    ledger = open_ledger(home)
    with schema() as url:
        (_, _, schema_name) = sa.make_url(url).query["options"].partition("=")
        with connect(url, "made") as server:
            for name in ("wards", "patients", "visits"):
                server.exec_driver_sql(f"CREATE TABLE {name} (id int)")
            server.commit()

        def account(tables: dict[str, str]) -> Account:
            text = TABLES
            for name, stored in tables.items():
                source = f"{{url: '{url}', table: {stored}}}"
                text = text.replace(f"{{path: {name}.csv}}", source)
            (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
            request = resolve(ReleaseRequest(spec=tmp_path / "spec.yaml"))
            context = public_context_of(request)
            opening = opening_of(request, context, home)
            return with_all_places(opening, ledger.books(), request, context).account

        usual = {name: name for name in ("wards", "patients", "visits")}
        whole = {name: f"{schema_name}.{name}" for name in usual}
        for tables in (usual, whole):
            ledger.open_account(account(tables), "officer", "why")
            exchanged = tables | {"patients": whole["visits"], "visits": whole["patients"]}
            with pytest.raises(InputError, match="as table 'patients', and here .*'visits'"):
                ledger.open_account(account(exchanged), "flow", "why")
    assert ledger.verify() == []
