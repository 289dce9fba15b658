"""Several tables: one release, charge and certificate; keys that do not hold, rules, refusals."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run
from cloister.privacy.ledger import State
from cloister.schema.domain import Domain
from cloister.schema.fan_outs import rows_changed
from cloister.schema.relations import Database, ForeignKey, Schema
from cloister.schema.sources.databases import connect
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.data.bounding import bound
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.verify import verify_records

SPEC = """
name: clinic
privacy: {unit: {table: patients}, relation: add_remove, rows: {public: 100},
  budget: {epsilon: 4, delta: 1e-5, per: ever}}
tables:
  patients:
    source: {path: patients.csv}
    key: id
    attributes:
      id: {type: text, pattern: "P{0001..9999}"}
      sex: {type: categorical, values: [f, m]}
  visits:
    source: {path: visits.csv}
    rows: {public: 200}
    references: {patient: {table: patients, max_rows: 3}}
    attributes:
      number: {type: text, pattern: "V{00001..99999}"}
      patient: {type: text, pattern: "P{0001..9999}"}
      cost: {type: integer, min: 0, max: 9}
      ward: {type: categorical, values: [a, b, c]}
release: {epsilon: 1, delta: 0, method: relational}
"""


@pytest.fixture
def clinic(folder: Path, prefect_server) -> Path:
    """A folder with a spec of two tables and their files."""
    rng = np.random.default_rng(5)
    patients = [f"P{number:04}" for number in range(1, 101)]
    frames = {
        "patients": pd.DataFrame({"id": patients, "sex": rng.choice(["f", "m"], 100)}),
        "visits": pd.DataFrame(
            {
                "number": [f"V{number:05}" for number in range(1, 201)],
                "patient": [*rng.choice(patients, 190), *(["P9000"] * 10)],
                "cost": rng.integers(0, 10, 200),
                "ward": rng.choice(["a", "b", "c"], 200),
            }
        ),
    }
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    (folder / "clinic.yaml").write_text(SPEC, encoding="utf-8")
    return folder


def test_two_tables_are_released_with_one_charge_and_one_certificate(clinic: Path, capsys) -> None:
    out = clinic / "out"
    words = ["release", "clinic.yaml", "--csv", "--out", str(out), "--json"]
    words += ["--evaluate", "none"]
    assert run(words) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    assert {path.name for path in out.iterdir()} == {
        *("certificate.html", "certificate.yaml", "report.html", "manifest.json", "schema.py"),
        *("candidate.dsse.json", "patients.schema.yaml", "visits.schema.yaml"),
        *(f"{name}.{ending}" for name in ("patients", "visits") for ending in ("csv", "parquet")),
    }
    patients, visits = (pd.read_parquet(out / f"{name}.parquet") for name in ("patients", "visits"))
    assert len(patients) == 100 and 0 < len(visits) <= 200
    assert said["tables"] == {"patients": 100, "visits": len(visits)}
    assert set(visits["patient"]) <= set(patients["id"])
    assert visits["patient"].value_counts().max() <= 3
    home = Home.current()
    ledger = existing_ledger(home)
    assert ledger is not None
    (release,) = ledger.releases("clinic")
    assert (release.state, release.request.unit) == (State.CANDIDATE, "table:patients")
    assert ledger.budget("clinic", "table:patients").spent == 1
    certificate = yaml.safe_load((out / "certificate.yaml").read_text(encoding="utf-8"))
    assert certificate["subject"]["product"] == "synthetic database"
    assert "visits.cost" in {attribute["name"] for attribute in certificate["attributes"]}
    assert {(c["name"], c["violations"]) for c in certificate["constraints"]} == {
        ("visits: patient", 0)
    }
    assert "patients" in certificate["guarantee"]["unit"]
    assert "one row of patients with all rows that refer" in certificate["guarantee"]["meaning"][0]
    (less,) = (said for said in certificate["limitations"] if "is protected less" in said)
    assert less.startswith("The unit is a row of patients with all rows that refer to it: ")
    assert verify_records(home, None)[1] == []
    assert verify_records(home, str(out))[1] == []
    pointer = home.versions / "releases" / said["release"] / "input.dvc"
    named = yaml.safe_load(pointer.read_text(encoding="utf-8"))["deps"]
    assert [Path(dep["path"]).name for dep in named] == ["patients.csv", "visits.csv"]
    assert run(["review", "approve", said["release"], "--reason", "fine"]) == 0
    assert run(["fetch", said["release"], "--out", str(clinic / "again")]) == 0
    assert (clinic / "again" / "visits.csv").read_bytes() == (out / "visits.csv").read_bytes()
    assert run(["sample", said["release"], "--rows", "5", "--out", str(clinic / "m.csv")]) == 2
    assert "there are several tables" in capsys.readouterr().err


def test_auto_means_relational_where_there_are_several_tables(clinic: Path, capsys) -> None:
    (clinic / "clinic.yaml").write_text(SPEC.replace(", method: relational", ""), encoding="utf-8")
    assert run(["plan", "clinic.yaml", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["method"] == "relational"
    assert "several tables" in str(planned)


def rules(*constraints: str) -> str:
    return "constraints: [" + ", ".join(f"{{{each}}}" for each in constraints) + "]\ntables:\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unit: {table: patients}", "unit: {key: id, max_rows: 2}", "of several tables is {table"),
        ("{table: patients, max_rows", "{table: doctors, max_rows", "is no table"),
        ("unit: {table: patients}", "unit: {table: visits}", "give rows of every table but visits"),
        ('patient: {type: text, pattern: "P{0001', 'patient: {type: text, pattern: "P{0000',
         "declared otherwise than the key"),
        ("    rows: {public: 200}\n", "", "give rows of every table"),
        ("patient: {type: text,", "patient: {type: text, nullable: true,", "may be missing"),
        ("    key: id\n", "", "other tables refer to it"),
        ("release: {", "attributes: {a: {type: boolean}}\nrelease: {", "exclude each other"),
        ("method: relational", "method: independent", "is of one table"),
        ("max_rows: 3", "max_rows: 0", "max_rows"),
        ("tables:\n", rules('deny: "visits.cost = 1"'), "across one foreign"),
        ("tables:\n", rules('deny: "visits.cost > patients.size"'), "no column patients.size"),
        ("tables:\n", rules("deny: visits.cost > patients.sex, soft: true"), "a deny, and hard"),
        ("visits.csv", "../nothing.csv", "does not exist"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_before_a_charge(clinic, capsys, old, new, message):
    assert old in SPEC
    (clinic / "clinic.yaml").write_text(SPEC.replace(old, new), encoding="utf-8")
    assert run(["release", "clinic.yaml"]) == 2
    assert message in capsys.readouterr().err
    assert not (clinic / "home" / "ledger.db").exists()


def test_tables_that_refer_to_each_other_in_a_circle_are_refused(clinic: Path, capsys) -> None:
    text = SPEC.replace("    rows: {public: 200}\n", "    rows: {public: 200}\n    key: number\n")
    last = '      last: {type: text, pattern: "V{00001..99999}"}\n'
    back = f"{last}    references: {{last: {{table: visits, max_rows: 1}}}}\n  visits:"
    (clinic / "clinic.yaml").write_text(text.replace("  visits:", back, 1), encoding="utf-8")
    assert run(["spec", "check", "clinic.yaml"]) == 2
    assert "circle" in capsys.readouterr().err


def charged() -> float:
    ledger = existing_ledger(Home.current())
    return float(sum(status.spent for status in ledger.budgets()))


@pytest.mark.slow
def test_rules_that_no_row_can_keep_leave_none_and_the_release_is_delivered(clinic, capsys):
    kept = rules(*(f"deny: \"visits.cost >= 0 and patients.sex = '{sex}'\"" for sex in "fm"))
    (clinic / "clinic.yaml").write_text(SPEC.replace("tables:\n", kept), encoding="utf-8")
    url = f"sqlite:///{clinic}/out.db"
    words = ["release", "clinic.yaml", "--out", url, "--csv", "--evaluate", "none"]
    assert run(words) == 0, capsys.readouterr().err
    with connect(url, "rows") as connection:
        counts = [
            connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar()
            for name in ("patients", "visits")
        ]
    assert counts == [100, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "patients",
    [
        pytest.param(["P0001"] * 200, id="all visits are of one patient, of whom three are used"),
        pytest.param(["P9000"] * 200, id="no visit is of anyone there", marks=pytest.mark.slow),
        pytest.param(["P0001"], id="one visit", marks=pytest.mark.slow),
    ],
)
def test_visits_of_nobody_or_of_one_are_left_out_and_the_release_delivered(
    clinic: Path, capsys, patients: list[str]
) -> None:
    visits = pd.read_csv("visits.csv")[: len(patients)]
    visits.assign(patient=patients).to_csv("visits.csv", index=False)
    assert run(["release", "clinic.yaml", "--out", "out", "--json"]) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    drawn, visits = (pd.read_parquet(f"out/{name}.parquet") for name in ("patients", "visits"))
    assert len(drawn) == 100
    assert set(visits["patient"]) <= set(drawn["id"])
    assert visits["patient"].value_counts().max() <= 3
    assert said["internal"]["metrics"]["relations.orphans"] == 0
    assert charged() == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: pd.read_csv("visits.csv")[:0].to_csv("visits.csv", index=False), "has no rows"),
        (
            lambda: pd.concat([pd.read_csv("patients.csv")] * 2).to_csv(
                "patients.csv", index=False
            ),
            "rows have the same key",
        ),
    ],
    ids=["a table without rows", "keys that name two rows"],
)
def test_data_that_cannot_be_used_is_refused_and_its_charge_given_back(
    clinic: Path, capsys, change, said: str
) -> None:
    change()
    assert run(["release", "clinic.yaml"]) == 2
    assert "validation.json says what is wrong" in capsys.readouterr().err
    (report,) = (clinic / "home").glob("releases/*/internal/validation.json")
    assert said in report.read_text(encoding="utf-8")
    assert charged() == 0


def test_a_row_of_the_first_table_changes_only_rows_that_refer_to_it(clinic: Path) -> None:
    """The bound of what a unit brings: its own row, and at most three visits."""
    spec = load_spec(clinic / "clinic.yaml")
    domains = {name: Domain.of(part.attributes, clinic) for name, part in spec.parts.items()}
    schema = Schema(domains, (ForeignKey("visits", "patient", "patients", "id", 3),))
    frames = {name: pd.read_csv(clinic / f"{name}.csv", dtype=str) for name in domains}
    frames["visits"]["cost"] = frames["visits"]["cost"].astype("Int64")

    def encoded(leave_out: str | None) -> Database:
        tables = {
            "patients": frames["patients"][frames["patients"]["id"] != leave_out],
            "visits": frames["visits"][frames["visits"]["patient"] != leave_out],
        }
        return bound(
            Database(schema, {name: domains[name].encode(frame) for name, frame in tables.items()}),
            b"k" * 32,
        )

    whole = encoded(None)
    assert whole.tables["visits"].codes["patient"].max() < 100
    for patient in ("P0001", "P0050", "P0100"):
        less = encoded(patient)
        for name, most in ((name, rows_changed(schema)[name]) for name in domains):
            rows, fewer = (
                {tuple(row) for row in table.tables[name].frame().itertuples(index=False)}
                for table in (whole, less)
            )
            assert fewer <= rows
            assert len(rows - fewer) <= most
