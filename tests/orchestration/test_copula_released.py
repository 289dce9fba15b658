"""The copula and its paper by the commands that a user has: released, verified, drawn as binary."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from small_disks import small_disk

from cloister.flows.cli.app import run

SPEC = """
name: survey
source: {path: survey.csv}
privacy: {unit: row, relation: replace_one, rows: {public: 800},
  budget: {epsilon: 40, delta: 1e-5, per: ever}}
attributes:
  answer: {type: text, pattern: "A{0001..9999}"}
  town: {type: categorical, values: [a, b, c, d], provenance: plan}
  land: {type: categorical, values: [x, y], provenance: plan}
  member: {type: boolean, nullable: true, provenance: form}
  score: {type: integer, min: 0, max: 99, bins: 5, special: [99], provenance: form}
constraints:
  - {name: land of town, fd: town -> land}
  - {name: few score, deny: "t.town = 'd' and t.score > 50", soft: true}
release: {epsilon: 9, delta: 1e-6}
"""


@pytest.fixture
def survey(folder: Path, prefect_server) -> Path:
    """A folder with the spec and 800 answers."""
    rng = np.random.default_rng(2)
    town = rng.integers(0, 4, 800)
    pd.DataFrame(
        {
            "answer": [f"A{at:04}" for at in range(1, 801)],
            "town": np.array(list("abcd"))[town],
            "land": np.array(list("xxyy"))[town],
            "member": np.where(rng.random(800) < 0.1, "", np.where(town < 2, "True", "False")),
            "score": np.where(rng.random(800) < 0.1, 99, 12 * town + rng.integers(0, 20, 800)),
        }
    ).to_csv(folder / "survey.csv", index=False)
    (folder / "survey.yaml").write_text(SPEC, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("method", "columns"),
    [
        ("copula", 4 + 1 + 3 + 6),
        pytest.param("copula-paper", 4 + 2 + 3 + 6, marks=pytest.mark.slow),
    ],
)
def test_a_copula_is_released_and_gives_its_binary_columns(survey, capsys, method, columns):
    out = survey / "out"
    words = ["release", "survey.yaml", "--method", method, "--out", str(out), "--json"]
    words += ["--evaluate", "none"]
    assert run(words) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    rows = pd.read_parquet(out / "synthetic.parquet")
    assert len(rows) == 800
    assert not (rows.groupby("town")["land"].nunique() > 1).any()
    certificate = (out / "certificate.yaml").read_text(encoding="utf-8")
    assert "Gaussian copula" in certificate
    assert yaml.safe_load(certificate)["guarantee"]["accounted"]["epsilon"] <= 9
    release = said["release"]
    assert run(["verify", "--json"]) == 0, capsys.readouterr().err
    words = ["review", "approve", release, "--by", "A. Officer", "--reason", "read"]
    assert run(words) == 0, capsys.readouterr().err
    ones = survey / "ones.parquet"
    words = ["sample", release, "--rows", "300", "--binary", "--seed", "1", "--out", str(ones)]
    assert run(words) == 0, capsys.readouterr().err
    with small_disk(survey / "disk", kilobytes=1024) as disk:  # records of as many rows would fit
        words = ["sample", release, "--rows", "45000", "--out", str(disk / "ones.parquet")]
        assert run([*words, "--binary"]) == 2
        assert "the disk has 1 MiB free and up to" in " ".join(capsys.readouterr().err.split())
        assert list(disk.iterdir()) == []
    binary = pd.read_parquet(ones)
    assert binary.shape == (300, columns)
    assert {"town=a", "score=0..19", "score=99", "member=missing"} <= set(binary.columns)
    assert set(np.unique(binary)) <= {0, 1}
    refused = ["sample", release, "--rows", "3", "--binary", "--out", str(survey / "ones.csv")]
    assert run(refused) == 2
    assert ".parquet" in capsys.readouterr().err


def test_the_paper_needs_a_delta_and_nothing_is_charged(survey, capsys):
    words = ["release", "survey.yaml", "--method", "copula-paper", "--delta", "0", "--out", "o"]
    assert run(words) == 2
    assert "theorem 3" in capsys.readouterr().err
    assert not (survey / "home").exists()
