"""Three tables in a chain, released with their relationships: keys, degrees, joint tables."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from small_disks import small_disk

from cloister.flows.cli.app import run
from cloister.schema.sources.databases import connect
from cloister.tasks.home.home import Home
from cloister.tasks.release.verify import verify_records


def late_imports():
    global load
    from cloister.flows.python import load


SPEC = """
name: clinic
privacy: {unit: {table: patients}, relation: add_remove, rows: {public: 1000},
  budget: {epsilon: 40, delta: 1e-5, per: ever}}
tables:
  patients:
    source: {path: patients.csv}
    key: id
    attributes:
      id: {type: text, pattern: "P{0001..9999}"}
      age: {type: integer, min: 0, max: 99}
  visits:
    source: {path: visits.csv}
    rows: {public: 2000}
    key: number
    references: {patient: {table: patients, max_rows: 4}}
    attributes:
      number: {type: text, pattern: "V{00001..99999}"}
      patient: {type: text, pattern: "P{0001..9999}"}
      ward: {type: categorical, values: [a, b, c, d]}
  drugs:
    source: {path: drugs.csv}
    rows: {public: 1500}
    references: {visit: {table: visits, max_rows: 2}}
    attributes:
      visit: {type: text, pattern: "V{00001..99999}"}
      dose: {type: integer, min: 0, max: 9, nullable: true}
release: {epsilon: 8, delta: 0, method: relational}
"""


@pytest.fixture
def clinic(folder: Path, prefect_server) -> Path:
    """A folder with a spec and files: wards go by age, and the old have more visits."""
    rng = np.random.default_rng(5)
    keys = np.array([f"P{number:04}" for number in range(1, 1001)])
    age = rng.integers(0, 100, 1000)
    owners = rng.choice(1000, 2000, p=(age + 20) / (age + 20).sum())
    wards = np.where(rng.random(2000) < 0.8, age[owners] // 25, rng.integers(0, 4, 2000))
    numbers = np.array([f"V{number:05}" for number in range(1, 2001)])
    frames = {
        "patients": {"id": keys, "age": age},
        "visits": {"number": numbers, "patient": keys[owners], "ward": np.array([*"abcd"])[wards]},
        "drugs": {
            "visit": rng.choice([*numbers, "V99999"], 1500),
            "dose": pd.array(rng.integers(0, 10, 1500), dtype="Int64"),
        },
    }
    for name, frame in frames.items():
        pd.DataFrame(frame).to_csv(folder / f"{name}.csv", index=False)
    (folder / "clinic.yaml").write_text(SPEC, encoding="utf-8")
    return folder


def test_tables_keep_keys_degrees_and_what_relates_them(clinic: Path, seeded_noise, capsys) -> None:
    out = clinic / "out"
    words = ["release", "clinic.yaml", "--out", str(out), "--json", "--seed-sampling", "7"]
    assert run(words) == 0
    said = json.loads(capsys.readouterr().out)
    patients, visits, drugs = (
        pd.read_parquet(out / f"{name}.parquet") for name in ("patients", "visits", "drugs")
    )
    assert len(patients) == 1000
    assert 1600 <= len(visits) <= 2000
    assert patients["id"].is_unique
    assert visits["number"].is_unique
    assert set(visits["patient"]) <= set(patients["id"])
    assert set(drugs["visit"]) <= set(visits["number"])
    assert visits["patient"].value_counts().max() <= 4
    assert drugs["visit"].value_counts().max() <= 2
    joined = visits.merge(patients, left_on="patient", right_on="id")
    same = joined["ward"] == (joined["age"] // 25).map(dict(enumerate("abcd")))
    assert same.mean() > 0.5  # of the data 0.85, of unrelated rows 0.25
    assert joined["age"].mean() > patients["age"].mean() + 4  # of the data 14
    certificate = yaml.safe_load((out / "certificate.yaml").read_text(encoding="utf-8"))
    assert {(c["name"], c["violations"]) for c in certificate["constraints"]} == {
        ("visits: patient", 0),
        ("drugs: visit", 0),
    }
    assert verify_records(Home.current(), str(out))[1] == []
    measured = said["internal"]
    assert measured["internal"] is True
    assert measured["metrics"]["relations.orphans"] == 0
    assert measured["metrics"]["relations.beyond_bound"] == 0
    assert measured["metrics"]["visits.to_patients_by_patient.across.half_l1"] < 0.3
    assert {relation["table"] for relation in measured["relations"]} == {"visits", "drugs"}
    (plots,) = (clinic / "home").glob("releases/*/internal/plots")
    assert {"units.png", "relations.csv", "visits"} <= {path.name for path in plots.iterdir()}
    words = ["evaluate", "clinic.yaml", "--synthetic", str(out), "--level", "quick", "--json"]
    assert run(words) == 0, capsys.readouterr().err
    again = json.loads(capsys.readouterr().out)
    degrees = "visits.to_patients_by_patient.degrees.mean_difference"
    # the release leaves out rows beyond max_rows, which the source still has
    assert again["metrics"][degrees] >= measured["metrics"][degrees]
    assert again["tables"]["visits"]["synthetic_rows"] == len(visits)
    _require_more_rows(said["release"], clinic, capsys)


def _require_more_rows(release: str, folder: Path, capsys) -> None:
    """The approved model draws another database: to folders, into SQLite, the same for one seed."""
    draw = ["sample", release, "--rows", "500", "--seed", "3", "--out"]
    assert run([*draw, str(folder / "more")]) == 2
    assert "approved releases only" in capsys.readouterr().err
    assert run(["review", "approve", release, "--reason", "fine"]) == 0
    assert run([*draw, str(folder / "more")]) == 0
    with small_disk(folder / "disk", kilobytes=1024) as disk:
        many = ["sample", release, "--rows", "100000", "--out", str(disk / "more")]
        assert run(many) == 2
        assert "the disk has 1 MiB free and up to" in " ".join(capsys.readouterr().err.split())
        assert list(disk.iterdir()) == []
    patients, visits, drugs = (
        pd.read_parquet(folder / "more" / f"{name}.parquet")
        for name in ("patients", "visits", "drugs")
    )
    assert len(patients) == 500
    assert set(visits["patient"]) <= set(patients["id"])
    assert set(drugs["visit"]) <= set(visits["number"])
    assert visits["patient"].value_counts().max() <= 4
    assert run([*draw, str(folder / "csv"), "--csv"]) == 0
    assert (folder / "csv" / "visits.csv").read_text().count("\n") == len(visits) + 1
    url = f"sqlite:///{folder}/more.db"
    assert run([*draw, url]) == 0
    assert run([*draw, url]) == 0  # the same draw, which is there
    with connect(url, "rows") as connection:
        loaded = pd.read_sql("SELECT * FROM visits", connection)
    pd.testing.assert_frame_equal(loaded, visits, check_dtype=False)
    capsys.readouterr()
    for words, message in (
        ([*draw, str(folder / "more")], "exists"),
        ([*draw, str(folder / "a.csv")], "there are several tables"),
        (
            [*draw, str(folder / "new"), "--where", "visits.day=3"],
            "rows of 'visits' belong to rows of 'patients'; give conditions on",
        ),
        (["sample", release, "--rows", "9", "--out", url], "not of this release"),
    ):
        assert run(words) == 2
        assert message in capsys.readouterr().err
    old = folder / "old"
    words = ["--rows", "60", "--seed", "3", "--out", str(old), "--where", "patients.age=80"]
    assert run(["sample", release, *words]) == 0
    assert pd.read_parquet(old / "patients.parquet")["age"].tolist() == [80] * 60
    theirs = pd.read_parquet(old / "visits.parquet")
    assert set(theirs["patient"]) <= set(pd.read_parquet(old / "patients.parquet")["id"])
    assert (theirs["ward"] == "d").mean() > 0.4  # of the data 0.85, of all rows 0.3
    frames = load(release).sample_tables(500, seed=3)
    pd.testing.assert_frame_equal(frames["visits"], visits, check_dtype=False)
    (counted,) = load(release).answer("patients: count()").answer.estimates
    assert counted.low <= 1_000 <= counted.high
    # of a patient at most four visits were used, so counts are of these
    used = pd.read_csv(folder / "visits.csv")["patient"].value_counts().clip(upper=4).sum()
    (counted,) = load(release).answer("visits: count()").answer.estimates
    assert counted.low <= used <= counted.high
    capsys.readouterr()
    for question in ("visits: count() where ward = 'd'", "drugs: count()"):
        assert run(["answer", release, question, "--json"]) == 0
        (asked,) = json.loads(capsys.readouterr().out)["estimates"]
        assert asked["low"] < asked["estimate"] < asked["high"]
    assert run(["answer", release, "count()"]) == 2
    assert "has several tables: patients, visits, drugs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("V{00001..99999}", "V{00001..01500}", "its pattern has 1,500 keys"),
        (
            "attributes:\n      number",
            "constraints: [{key: [patient]}]\n    attributes:\n      number",
            "max_rows: 1",
        ),
    ],
)
def test_what_has_no_plan_is_refused_before_a_charge(clinic, capsys, old, new, message):
    assert old in SPEC
    (clinic / "clinic.yaml").write_text(SPEC.replace(old, new), encoding="utf-8")
    assert run(["release", "clinic.yaml"]) == 2
    assert message in capsys.readouterr().err
    assert not (clinic / "home" / "ledger.db").exists()
