"""A method of two tables and a foreign key: one release, two files, one charge, one certificate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run
from cloister.models.protocol import DatabaseSynthesizer
from cloister.models.registry import METHODS
from cloister.models.task import Budget, DatabaseTask, Forecast, Parameters, Plan, Stage
from cloister.privacy.ledger import State
from cloister.privacy.mechanisms.noise import DiscreteLaplace
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.schema.domain import Domain, Table
from cloister.schema.fan_outs import rows_changed
from cloister.schema.partition import single_values
from cloister.schema.relations import Database, ForeignKey, Schema
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.data.bounding import bound
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.verify import verify_records

SPEC = """
name: clinic
privacy:
  unit: {table: patients}
  relation: add_remove
  rows: {public: 300}
  budget: {epsilon: 4, delta: 1e-5, per: ever}
tables:
  patients:
    source: {path: patients.csv}
    key: id
    attributes:
      id: {type: text, pattern: "P{0001..9999}"}
      sex: {type: categorical, values: [f, m]}
  visits:
    source: {path: visits.csv}
    rows: {public: 600}
    references: {patient: {table: patients, max_rows: 3}}
    attributes:
      number: {type: text, pattern: "V{00001..99999}"}
      patient: {type: text, pattern: "P{0001..9999}"}
      cost: {type: integer, min: 0, max: 9}
      ward: {type: categorical, values: [a, b, c]}
release: {epsilon: 1, delta: 0, method: shares}
"""


@dataclass(frozen=True)
class SharesParameters(Parameters):
    epsilon: Fraction


@dataclass(frozen=True)
class SharesModel:
    """One-way shares of each column; each visit is of an even patient."""

    schema: Schema
    rows: dict[str, int]
    shares: dict[str, np.ndarray]
    capacity: None = None
    samplers: ClassVar[dict[str, Any]] = {}

    def sample(self, rows: int, rng: SamplingSource) -> Database:
        draw, tables = rng.generator, {}
        for name, domain in self.schema.tables.items():
            scale = rows / next(iter(self.rows.values()))
            size = rows if not tables else round(self.rows[name] * scale)
            references = {key.column: key for key in self.schema.parents_of(name)}
            codes = {}
            for column in domain.names:
                if column in references:
                    places = np.repeat(np.arange(rows), references[column].max_rows)
                    codes[column] = np.sort(draw.choice(places, size, replace=False))
                elif domain[column].kind == "key":
                    codes[column] = np.arange(size)
                else:
                    shares = self.shares[f"{name}.{column}"]
                    codes[column] = draw.choice(len(shares), size, p=shares)
            tables[name] = Table(domain, codes)
        return Database(self.schema, tables)

    @property
    def histograms(self) -> dict[str, dict[str, Any]]:
        return {}

    def post_processing(self) -> tuple[str, ...]:
        return ("each column is drawn on its own",)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {}, dict(self.shares)


class Shares(DatabaseSynthesizer[SharesParameters, SharesModel]):
    name, summary = "shares", "one-way shares of several tables, for a test"

    def __init__(self, progress) -> None:
        del progress

    def sequence(self, task: DatabaseTask) -> tuple[str, ...]:
        return tuple(
            f"{t}.{c}" for t, domain in task.schema.tables.items() for c in domain.modelled
        )

    def search(self, task: DatabaseTask, sequence, budget: Budget) -> Plan[SharesParameters]:
        each = budget.epsilon / len(sequence)
        stages = tuple(
            Stage(
                name,
                DiscreteLaplace(each).event(
                    question(task, name).sensitivity(task.tables[name.partition(".")[0]].neighbours)
                ),
                f"noisy counts of {name}",
            )
            for name in sequence
        )
        return Plan(self.name, sequence, stages, SharesParameters(each), Forecast(1.0, 1 << 20))

    def train(self, private, task: DatabaseTask, plan: Plan[SharesParameters]) -> SharesModel:
        shares = {}
        for name in plan.sequence:
            door = private.table(name.partition(".")[0])
            counts = door.answer(
                question(task, name), DiscreteLaplace(plan.parameters.epsilon), name
            )
            positive = np.clip(counts, 1, None)
            shares[name] = positive / positive.sum()
        return self.restore(task, {}, shares)

    def restore(self, task: DatabaseTask, meta, arrays) -> SharesModel:
        rows = {name: of.data_rows for name, of in task.tables.items()}
        return SharesModel(task.schema, rows, dict(arrays))


def question(task: DatabaseTask, name: str) -> PartitionCounts:
    table, _, column = name.partition(".")
    return PartitionCounts((single_values(task.schema.tables[table][column]),))


@pytest.fixture
def clinic(tmp_path: Path, prefect_server, monkeypatch) -> Path:
    """A folder with a spec of two tables and their files."""
    monkeypatch.setitem(METHODS, "shares", Shares)
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    patients = [f"P{number:04}" for number in range(1, 301)]
    frames = {
        "patients": pd.DataFrame({"id": patients, "sex": rng.choice(["f", "m"], 300)}),
        "visits": pd.DataFrame(
            {
                "number": [f"V{number:05}" for number in range(1, 601)],
                "patient": [*rng.choice(patients, 590), *(["P9000"] * 10)],
                "cost": rng.integers(0, 10, 600),
                "ward": rng.choice(["a", "b", "c"], 600),
            }
        ),
    }
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "clinic.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def test_two_tables_are_released_with_one_charge_and_one_certificate(clinic: Path, capsys) -> None:
    out = clinic / "out"
    words = ["release", "clinic.yaml", "--csv", "--out", str(out), "--json"]
    words += ["--evaluate", "none"]
    assert run(words) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    assert {path.name for path in out.iterdir()} == {
        "certificate.html",
        "certificate.yaml",
        "report.html",
        "manifest.json",
        "candidate.dsse.json",
        "schema.py",
        "patients.schema.yaml",
        "visits.schema.yaml",
        *(f"{name}.{ending}" for name in ("patients", "visits") for ending in ("csv", "parquet")),
    }
    patients, visits = (pd.read_parquet(out / f"{name}.parquet") for name in ("patients", "visits"))
    assert (len(patients), len(visits)) == (300, 600)
    assert said["tables"] == {"patients": 300, "visits": 600}
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


def test_a_plan_names_both_tables_and_costs_nothing(clinic: Path, capsys) -> None:
    assert run(["plan", "clinic.yaml"]) == 0
    said = capsys.readouterr().out
    assert "patients.sex" in said
    assert "visits.ward" in said


def test_auto_means_relational_where_there_are_several_tables(clinic: Path, capsys) -> None:
    (clinic / "clinic.yaml").write_text(SPEC.replace(", method: shares", ""), encoding="utf-8")
    assert run(["plan", "clinic.yaml", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["method"] == "relational"
    assert "several tables" in str(planned)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unit: {table: patients}", "unit: {key: id, max_rows: 2}", "of several tables is {table"),
        ("{table: patients, max_rows", "{table: doctors, max_rows", "is no table"),
        ("unit: {table: patients}", "unit: {table: visits}", "give rows of every table but visits"),
        ('patient: {type: text, pattern: "P{0001', 'patient: {type: text, pattern: "P{0000',
         "declared otherwise than the key"),
        ("    rows: {public: 600}\n", "", "give rows of every table"),
        ("patient: {type: text,", "patient: {type: text, nullable: true,", "may be missing"),
        ("    key: id\n", "", "other tables refer to it"),
        ("release: {", "attributes: {a: {type: boolean}}\nrelease: {", "exclude each other"),
        ("method: shares", "method: independent", "is of one table"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_before_a_charge(
    clinic: Path, capsys, old: str, new: str, message: str
) -> None:
    assert old in SPEC
    (clinic / "clinic.yaml").write_text(SPEC.replace(old, new), encoding="utf-8")
    assert run(["release", "clinic.yaml"]) == 2
    assert message in capsys.readouterr().err
    assert not (clinic / "home" / "ledger.db").exists()


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
    assert whole.tables["visits"].codes["patient"].max() < 300
    for patient in ("P0001", "P0123", "P0300"):
        less = encoded(patient)
        for name, most in ((name, rows_changed(schema)[name]) for name in domains):
            rows, fewer = (
                {tuple(row) for row in table.tables[name].frame().itertuples(index=False)}
                for table in (whole, less)
            )
            assert fewer <= rows
            assert len(rows - fewer) <= most
