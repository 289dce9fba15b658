"""Spec files of any content: accepted, or refused with exit code 2, in little time and memory."""

import itertools
import os
from pathlib import Path

import hostile
import pytest
from nursery import Nursery

ROOT = Path(__file__).parents[2]
SAMPLE, ALL, SEED = 4, 400, 20261122

SMALL = """
name: small
source: {path: data.csv, missing: ["", "NA"], delimiter: ";"}
privacy:
  unit: {key: id, max_rows: 3}
  relation: add_remove
  rows: {public: 2000}
  budget: {epsilon: 4, delta: 1e-5, per: year}
attributes:
  id: {type: text, pattern: "P{00001..99999}", provenance: numbering}
  town: {type: categorical, values: {file: codes/towns.txt}, provenance: gazetteer}
  grade: {type: ordinal, values: [low, middle, high], nullable: true, provenance: form}
  zip: {type: categorical, values: {pattern: "z{01..40}"}, provenance: post}
  age: {type: integer, min: 18, max: 80, bins: 16, special: [99], provenance: form}
  wage: {type: float, min: 0, max: 1000.5, decimals: 2, bins: 20, provenance: form}
  since: {type: date, min: 2000-01-01, max: 2009-12-31, bins: 10, nullable: true, provenance: act}
  seen:
    {type: datetime, min: 2000-01-01T00:00:00, max: 2009-12-31T00:00:00, step: 3600,
     provenance: log}
  member: {type: boolean, true: "yes", false: "no", provenance: form}
constraints:
  - {name: place, fd: "zip -> town"}
  - {name: young, deny: "t.age < 20 and t.wage > 0"}
  - {name: pay, deny: "t1.age < t2.age and t1.wage > t2.wage", soft: true}
  - {file: codes/rules.ic}
release: {method: METHOD, epsilon: 1, delta: 1e-6, rows: 500}
evaluation: {targets: {member: ["yes"], age: {above: 40}, town: [Ada]}}
validation: {on_invalid: drop}
"""
DOCUMENTS = [
    SMALL.replace("METHOD", method)
    for method in ("auto", "mixture", "kamino", "dpview", "independent")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mutants")
    codes = made / "codes"
    codes.mkdir()
    (codes / "towns.txt").write_text("Ada\nBath\nCork\n")
    (codes / "rules.ic").write_text("t1&t2&EQ(t1.town,t2.town)&IQ(t1.grade,t2.grade)\n")
    (codes / "latin.txt").write_bytes(b"caf\xe9\n")
    with (codes / "big.txt").open("wb") as file:
        file.truncate(10**10)
    os.mkfifo(codes / "pipe")
    return made


def faults_of(text: str, folder: Path, children: Nursery) -> list[str]:
    """What the commands that read a spec do wrong over one."""
    path = folder / "spec.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    check = children.run("spec", "check", str(path))
    planned = children.run("plan", str(path)) if check.code == 0 else None
    found = check.faults + (planned.faults if planned else [])
    return found + [
        f"exit code {ended.code}" for ended in (check, planned) if ended and ended.code == 1
    ]


@pytest.mark.slow
def test_documents_can_be_released_and_bombs_are_refused(folder: Path, children: Nursery) -> None:
    path = folder / "spec.yaml"
    path.write_text(DOCUMENTS[0])
    assert children.run("spec", "check", str(path)).code == 0
    for text in hostile.bombs():
        path.write_text(text)
        ended = children.run("spec", "check", str(path))
        assert (ended.code, ended.faults) == (2, []), text[:100]


NAMES = ("pipe", "big.txt", "none.txt", ".", "/dev/zero", "/dev/null")
ENTRIES = ("codes/towns.txt", "codes/rules.ic", None)
FEW = {("/dev/zero", ENTRIES[0]), ("pipe", ENTRIES[1]), ("big.txt", None)}


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case not in FEW))
        for case in itertools.product(NAMES, ENTRIES)
    ],
)
def test_a_file_that_is_none_is_refused(folder, children, name, entry) -> None:
    place = str(folder / "codes" / name)
    path = folder / "spec.yaml"
    path.write_text(DOCUMENTS[0].replace(entry, place) if entry else DOCUMENTS[0])
    ended = children.run("spec", "check", str(path) if entry else place)
    assert (ended.code, ended.faults) == (2, [])


@pytest.mark.parametrize(
    "count", [SAMPLE, pytest.param(ALL, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_a_mutant_is_taken_or_refused_in_words(folder: Path, children: Nursery, count: int) -> None:
    found = {}
    for number, text in enumerate(itertools.islice(hostile.mutants(DOCUMENTS, SEED), count)):
        if faults := faults_of(text, folder, children):
            (folder / f"mutant-{number}.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
            found[number] = faults
    assert found == {}, f"kept in {folder}"
