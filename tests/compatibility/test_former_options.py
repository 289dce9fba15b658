"""Names that methods had in specs and ledgers to 0.2: options are read, digests and events kept.

The digests were recorded with the last version that had the keys: a release killed under it is
resumed by this one, which refuses a spec of another digest.
"""

from fractions import Fraction
from pathlib import Path

import pytest

from cloister.privacy.events import UncountedRecords, event_from_json
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve

ONE = """
name: small
source: {path: data.csv}
privacy: {unit: row, relation: add_remove, rows: {public: 2000},
  budget: {epsilon: 4, delta: 1e-5, per: year}}
attributes:
  grade: {type: ordinal, values: [low, middle, high], nullable: true}
  age: {type: integer, min: 18, max: 80, bins: 16}
release: {method: METHOD, epsilon: 0.5, delta: 1e-6, KEY}
"""
SEVERAL = """
name: visits
privacy: {unit: {table: patients}, relation: add_remove, rows: {public: 100},
  budget: {epsilon: 4, delta: 1e-5, per: ever}}
tables:
  patients:
    source: {path: patients.csv}
    key: id
    attributes:
      id: {type: text, pattern: "p{0001..9999}"}
      age: {type: integer, min: 0, max: 99}
  visits:
    source: {path: visits.csv}
    rows: {public: 300}
    references: {patient: {table: patients, max_rows: 5}}
    attributes:
      patient: {type: text, pattern: "p{0001..9999}"}
      day: {type: integer, min: 0, max: 99}
release: {method: METHOD, epsilon: 0.5, delta: 1e-6, KEY}
"""
RECORDED = {
    "0771428547c59507": (ONE, "dpview", "dpview: {view_width: 3, parts: 8, linking: priority}"),
    "46bc85d0ac9413cf": (ONE, "dpview+", "dpview: {linking: matching}"),
    "a8246ec7329bdcf2": (ONE, "dpview", "dpview: {}"),
    "a34dfe5be7a6f8d4": (ONE, "dpview", "dpview: null"),
    "9b190c3031e94023": (
        ONE,
        "deniability",
        (
            "guarantee: plausible-deniability, deniability: {k: 20, gamma: 4, epsilon0: 0.5, "
            "resampled: [1, 2], test: randomised, candidates: 500}"
        ),
    ),
    "c6399c40040af033": (ONE, "deniability-paper", "deniability: {gamma: 4/3, resampled: 2}"),
    "9363f6ae70fa6eb6": (
        ONE,
        "deniability",
        "deniability: {test: deterministic, k: '20', candidates: 5.0}",
    ),
    "097a81d21eff0308": (
        SEVERAL,
        "relational",
        (
            "relational: {table_method: independent, epsilon: 0.1, rounds: 2, workloads: 3, "
            "alpha: 0.25, ways: 2}"
        ),
    ),
    "74ff5f88b19ad399": (
        SEVERAL,
        "relational-paper",
        "relational: {fitted: 8, slice: 100, slices: 4}",
    ),
}
"""By the first 16 digits of the digest."""


@pytest.mark.parametrize("digest", RECORDED)
def test_a_spec_with_a_former_key_has_the_digest_that_it_had(tmp_path, digest):
    path, (text, method, key) = tmp_path / "spec.yaml", RECORDED[digest]
    path.write_text(text.replace("METHOD", method).replace("KEY", key))
    assert spec_digest(load_spec(path))[:16] == digest


def test_former_options_of_another_method_are_ignored_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(ONE.replace("METHOD", "mixture").replace("KEY", "deniability: {k: 20}"))
    assert resolve(ReleaseRequest(spec=path)).method == "mixture"


def test_an_event_of_a_ledger_keeps_its_name() -> None:
    event = UncountedRecords(50, Fraction(4), 10)
    written = {
        "event": "PlausiblyDeniable",
        "k": 50,
        "gamma": "4/1",
        "candidates": 10,
        "bounded": None,
        "rows": 1,
    }
    assert event.to_json() == written
    assert event_from_json(written) == event
