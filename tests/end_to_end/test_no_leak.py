"""No value of the data leaks: planted values are searched in all files and all output."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
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
privacy: {unit: row, relation: add_remove, rows: {public: 400},
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
    group = rng.choice(["a", "b", "c"], 400)
    frame = pd.DataFrame(
        {
            "person": [f"P{number:06d}" for number in rng.permutation(999_999)[:400] + 1],
            "group": group,
            "amount": np.round(rng.gamma(2, 4000, 400), 4).astype(str),
            "born": np.datetime64("1940-01-01") + rng.integers(0, 9000, 400),
            "level": rng.integers(0, 9, 400).astype(str),
        }
    )
    frame["born"] = frame["born"].astype(str).replace(DATE, "1950-01-01")
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


def everything_written(folder: Path, data: str) -> dict[str, bytes]:
    """Every file but the data, with compressed parts opened."""
    contents = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != data:
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


def assert_silent(contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        for canary in CANARIES:
            assert canary.encode() not in content, f"{name} holds a value of the data"
            assert canary.encode("utf-16-le") not in content, f"{name} holds a value of the data"


REFUSED = {
    "a word in a list": {"group": WORD},
    "others": {"born": WORD, "amount": NUMBER.replace(".", ""), "level": DATE},
}

COMMANDS = f"""
import json, sys
from dataclasses import replace
from cloister.flows.cli.app import main
from cloister.models.kamino import fit
from cloister.models.kamino.synthesizer import RECIPES
from cloister.tasks.home.home import Home
from cloister.tasks.stores.prefect_server import serving

def broken(*given):
    raise ValueError("could not convert string to float: {WORD}")

def ended(name, words):
    for stream in (sys.stdout, sys.stderr):
        print("=====", name, file=stream, flush=True)
    try:
        main(words)
    except SystemExit as done:
        return done.code

for name, recipe in RECIPES.items():
    RECIPES[name] = replace(recipe, trainer=replace(recipe.trainer, steps=40))
home = Home.current()
home.configure()
with serving(home):
    foreseen, unforeseen = json.loads(sys.argv[1])
    codes = {{name: ended(name, words) for name, words in foreseen.items()}}
    fit._histograms = broken
    codes |= {{name: ended(name, words) for name, words in unforeseen.items()}}
print("=====", "codes", flush=True)
print(json.dumps(codes))
"""


@dataclass(frozen=True)
class Ended:
    """Releases of one process with one server: exit codes, output, and all files."""

    folder: Path
    codes: dict[str, int]
    said: dict[str, str]


@pytest.fixture(scope="module")
def ended(prefect_server, tmp_path_factory) -> Ended:
    """A release, each refusal, and at last a failure that no code foresees, in one home."""
    folder = tmp_path_factory.mktemp("ended")
    foreseen = {"released": [*release_of(*planted(made(folder / "released"))), "--csv"]}
    foreseen |= {
        name: release_of(*planted(made(folder / f"refused {at}"), **values))
        for at, (name, values) in enumerate(REFUSED.items())
    }
    unforeseen = {"unforeseen": release_of(*planted(made(folder / "unforeseen")))}
    made(folder / "home")
    shutil.copyfile(prefect_server, made(folder / "home" / "prefect") / "prefect.db")
    own = {name: value for name, value in os.environ.items() if name != "PREFECT_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps([foreseen, unforeseen])],
        cwd=folder,
        env=own | {"CLOISTER_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    first, *parts = (done.stdout + done.stderr).split("===== ")
    said: dict[str, str] = defaultdict(str, {"server": first})
    for part in parts:
        name, _, text = part.partition("\n")
        said[name] += text
    return Ended(folder, json.loads(said.pop("codes")), said)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def release_of(spec: Path, data: Path) -> list[str]:
    return ["release", str(spec), "--data", str(data), "--out", str(spec.parent / "out")]


def test_a_release_a_refusal_and_an_unforeseen_failure_end_as_such(ended):
    assert ended.codes["released"] == 0, ended.said["released"]
    assert (ended.folder / "released" / "out" / "synthetic.csv").exists()
    for name, values in REFUSED.items():
        said = ended.said[name]
        assert ended.codes[name] == 2, said
        reports = (ended.folder / "home" / "releases").glob("*/internal/validation.json")
        (report,) = [report for report in reports if str(report) in said]
        assert all(column in report.read_text() for column in values)
        assert "Traceback" not in said
    assert ended.codes["unforeseen"] == 1
    assert "failed inside" in ended.said["unforeseen"]


def test_neither_a_release_nor_what_failed_leaves_or_says_a_value_of_its_rows(ended):
    assert [out.parent.name for out in ended.folder.glob("*/out")] == ["released"]
    spoken = {name: text.encode() for name, text in ended.said.items()}
    written = everything_written(ended.folder, "people.csv")
    assert b"release" in written["home/prefect/prefect.db"]
    assert_silent(written | spoken)
