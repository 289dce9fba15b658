"""A release of persons with several rows: charged, certified, evaluated, verified, drawn again."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import release_of
from cloister.tasks.release.verify import verify_records

SPEC = """
name: visits
source: {path: visits.csv}
privacy: {unit: {key: person, max_rows: 4}, relation: add_remove, rows: {public: 300},
  budget: {epsilon: 20, delta: 0, per: ever}}
attributes:
  visit: {type: text, pattern: "V{00001..99999}"}
  person: {type: text, pattern: "P{0001..9999}"}
  sex: {type: categorical, values: [f, m], provenance: form}
  born: {type: integer, min: 1900, max: 2020, bins: 12, per: person, provenance: form}
  ward: {type: categorical, values: [a, b, c, d, e], provenance: plan}
  cost: {type: integer, min: 0, max: 9, provenance: prices}
constraints:
  - {name: tied, fd: person -> sex}
  - {name: once, key: [person, ward]}
release: {method: independent, epsilon: 8, delta: 0, rows: 250}
"""


@pytest.fixture
def visits(folder: Path, prefect_server) -> Path:
    """A folder with the spec and the rows of a hundred persons."""
    rng = np.random.default_rng(5)
    owner = np.repeat(np.arange(100), rng.integers(1, 6, 100))
    ward = np.concatenate([rng.permutation(5)[:n] for n in np.bincount(owner)])
    pd.DataFrame(
        {
            "visit": [f"V{at + 1:05}" for at in range(len(owner))],
            "person": [f"P{at + 9001 - 1:04}" for at in owner],
            "sex": np.where(rng.random(100) < 0.8, "f", "m")[owner],
            "born": rng.integers(1940, 1990, 100)[owner],
            "ward": np.array(list("abcde"))[ward],
            "cost": rng.integers(0, 10, len(owner)),
        }
    ).to_csv(folder / "visits.csv", index=False)
    (folder / "visits.yaml").write_text(SPEC, encoding="utf-8")
    return folder


def test_persons_are_released_with_their_rows(visits: Path, seeded_noise, capsys) -> None:
    out = visits / "out"
    words = ["release", "visits.yaml", "--out", str(out), "--json", "--seed-sampling", "7"]
    words += ["--evaluate", "quick"]
    assert run(words) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    rows = pd.read_parquet(out / "synthetic.parquet")
    persons = rows.groupby("person")
    assert len(rows) == 250 and rows["visit"].is_unique
    assert persons[["sex", "born"]].nunique().to_numpy().max() == 1
    assert 1 < persons.size().max() <= 4
    assert not rows.duplicated(["person", "ward"]).any()
    metrics = said["internal"]["metrics"]
    assert metrics["persons.broken_attributes"] == 0
    assert metrics["persons.sizes.half_l1"] < 0.5
    certificate = yaml.safe_load((out / "certificate.yaml").read_text(encoding="utf-8"))
    domains = {one["name"]: one["domain"] for one in certificate["attributes"]}
    assert [name for name in domains if "all rows of a person" in domains[name]] == ["sex", "born"]
    assert certificate["guarantee"]["accounted"]["epsilon"] == pytest.approx(8)
    assert "persons: number" in {stage["name"] for stage in certificate["stages"]}
    assert verify_records(Home.current(), None)[1] == []
    held = release_of(Home.current(), said["release"])  # seeded noise stains what is handed on
    assert "NOT PRIVATE" in held.request.stain
    assert "NOT PRIVATE" in yaml.dump(certificate)
    assert "NOT PRIVATE" in (out / "certificate.html").read_text(encoding="utf-8")
    assert run(["review", "approve", said["release"], "--reason", "fine"]) == 0
    more = ["sample", said["release"], "--rows", "60"]
    assert run([*more, "--out", "more.csv"]) == 0
    assert pd.read_csv("more.csv").groupby("person").born.nunique().max() == 1
    assert run([*more, "--out", "some.csv", "--where", "sex=f"]) == 0
    assert pd.read_csv("some.csv").sex.tolist() == ["f"] * 60
    assert run([*more, "--out", "none.csv", "--where", "ward=a"]) == 2
    assert "rows of a person differ in it; give conditions on sex, born" in capsys.readouterr().err
    assert run(["answer", said["release"], "count()"]) == 0


def test_too_few_keys_are_found_before_the_charge(visits: Path, capsys) -> None:
    spec = visits / "visits.yaml"
    spec.write_text(SPEC.replace("P{0001..9999}", "P{9001..9061}"), encoding="utf-8")
    assert run(["release", "visits.yaml", "--out", str(visits / "out")]) == 2
    assert "names at most 61 persons of at most 4 rows" in capsys.readouterr().err
    assert not (visits / "home" / "releases").exists()
