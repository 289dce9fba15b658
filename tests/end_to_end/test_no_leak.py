"""No value of the data leaks: planted values are searched in all files and all output."""

import gzip
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

KEY = "KEY-CANARY-58213977"
NUMBER = "734512.8619"
WORD = "word-canary-quokka"
DATE = "1999-07-13"
CANARIES = (KEY, NUMBER, WORD, DATE)

SPEC = """
name: canaries
source: {path: people.csv}
privacy: {unit: row, relation: add_remove, rows: {public: 1200},
  budget: {epsilon: 50, delta: 5e-4, per: ever}}
attributes:
  person: {type: text, pattern: "P{000001..999999}"}
  group: {type: categorical, values: [a, b, c, word-canary-quokka]}
  amount: {type: float, min: 0, max: 1000000, decimals: 4, nullable: true}
  born: {type: date, min: 1900-01-01, max: 2020-12-31}
  level: {type: integer, min: 0, max: 9}
constraints:
  - {name: level-of-group, fd: group -> level, soft: true}
release: {method: kamino, epsilon: 2, delta: 1e-5}
"""


def people() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    group = rng.choice(["a", "b", "c"], 1200)
    frame = pd.DataFrame(
        {
            "person": [f"P{number:06d}" for number in rng.permutation(999_999)[:1200] + 1],
            "group": group,
            "amount": np.round(rng.gamma(2, 4000, 1200), 4).astype(str),
            "born": pd.Timestamp("1940-01-01")
            + pd.to_timedelta(rng.integers(0, 9000, 1200), unit="D"),
            "level": rng.integers(0, 9, 1200).astype(str),
        }
    )
    frame["born"] = (
        frame["born"]
        .dt.strftime("%Y-%m-%d")
        .where(frame["born"] != pd.Timestamp(DATE), "1950-01-01")
    )
    frame.loc[17, ["person", "amount"]] = [KEY, NUMBER]
    return frame


def planted(folder: Path, **changes: str) -> tuple[Path, Path]:
    spec, data = folder / "people.yaml", folder / "people.csv"
    frame = people()
    for column, value in changes.items():
        frame.loc[100, column] = value
    frame.to_csv(data, index=False)
    spec.write_text(SPEC.replace(", word-canary-quokka", ""))
    return spec, data


def cloister(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CLOISTER_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    command = [str(Path(sys.executable).with_name("cloister")), *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def everything_written(folder: Path, data: Path) -> dict[str, bytes]:
    """Every file but the data, with compressed parts opened."""
    contents = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.resolve() != data.resolve():
            contents[str(path.relative_to(folder))] = _opened(path)
    return contents


def _opened(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.suffix == ".parquet":
        return raw + pd.read_parquet(path).to_csv().encode()
    if path.suffix in (".gz", ".tgz"):
        return raw + gzip.decompress(raw)
    pieces = [raw]
    for match in re.finditer(rb"\x78[\x01\x9c\xda]", raw):
        try:
            pieces.append(zlib.decompressobj().decompress(raw[match.start() :], 10**7))
        except zlib.error:
            continue
    return b"".join(pieces)


def assert_silent(folder: Path, data: Path, said: subprocess.CompletedProcess[str]) -> None:
    spoken = {"stdout": said.stdout.encode(), "stderr": said.stderr.encode()}
    for name, content in (everything_written(folder, data) | spoken).items():
        for canary in CANARIES:
            assert canary.encode() not in content, f"{name} holds a value of the data"
            assert canary.encode("utf-16-le") not in content, f"{name} holds a value of the data"


def test_a_release_says_nothing_of_its_rows(tmp_path):
    spec, data = planted(tmp_path)
    out = tmp_path / "out"
    said = cloister(tmp_path, "release", spec, "--data", data, "--out", out, "--csv")
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "out" / "synthetic.csv").exists()
    assert_silent(tmp_path, data, said)


@pytest.mark.parametrize(
    ("column", "value"),
    [("group", WORD), ("born", WORD), ("amount", NUMBER.replace(".", "")), ("level", DATE)],
)
def test_a_refusal_says_nothing_of_its_rows(tmp_path, column, value):
    spec, data = planted(tmp_path, **{column: value})
    said = cloister(tmp_path, "release", spec, "--data", data, "--out", tmp_path / "out")
    assert said.returncode == 2, said.stdout + said.stderr
    (report,) = (tmp_path / "home" / "releases").glob("*/internal/validation.json")
    assert str(report) in said.stderr
    assert column in report.read_text()
    assert "Traceback" not in said.stderr
    assert not (tmp_path / "out").exists()
    assert_silent(tmp_path, data, said)


def test_an_unforeseen_failure_says_nothing_of_its_rows(tmp_path):
    spec, data = planted(tmp_path)
    program = (
        "import cloister.models.kamino.fit as s\n"
        "def broken(private, task, plan):\n"
        f"    raise ValueError('could not convert string to float: {WORD}')\n"
        "s._histograms = broken\n"
        "from cloister.flows.cli.app import main\n"
        "main()\n"
    )
    environment = os.environ | {"CLOISTER_HOME": str(tmp_path / "home")}
    command = [
        sys.executable,
        "-c",
        program,
        "release",
        str(spec),
        "--data",
        str(data),
        "--out",
        str(tmp_path / "out"),
    ]
    said = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert said.returncode == 1
    assert_silent(tmp_path, data, said)
