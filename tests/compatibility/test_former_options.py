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
privacy:
  unit: row
  relation: add_remove
  rows: {public: 2000}
  budget: {epsilon: 4, delta: 1e-5, per: year}
attributes:
  grade: {type: ordinal, values: [low, middle, high], nullable: true}
  age: {type: integer, min: 18, max: 80, bins: 16}
release: {method: METHOD, epsilon: 0.5, delta: 1e-6, KEY}
"""
SEVERAL = """
name: visits
privacy:
  unit: {table: patients}
  relation: add_remove
  rows: {public: 100}
  budget: {epsilon: 4, delta: 1e-5, per: ever}
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
RECORDED = [
    (
        ONE,
        "dpview",
        "dpview: {view_width: 3, parts: 8, linking: priority}",
        "0771428547c595076eb4753e30da401a77e685faccf8a3b5da166f7f558837b4",
    ),
    (
        ONE,
        "dpview+",
        "dpview: {linking: matching}",
        "46bc85d0ac9413cf7fcf07e27019fd8dc12223ad2d193d3882cdf95fe58d6365",
    ),
    (
        ONE,
        "dpview",
        "dpview: {}",
        "a8246ec7329bdcf247de3cda1b2d09c3c5e463a4e1ecc1fa11057400230316ff",
    ),
    (
        ONE,
        "dpview",
        "dpview: null",
        "a34dfe5be7a6f8d48ed589add783bf18223b602dfe4d6af5445f7022f34a5ee8",
    ),
    (
        ONE,
        "deniability",
        (
            "guarantee: plausible-deniability, deniability: {k: 20, gamma: 4, epsilon0: 0.5, "
            "resampled: [1, 2], test: randomised, candidates: 500}"
        ),
        "9b190c3031e940230a22696e545e7dde2b1972395b437ea274fe9eabea3f32c8",
    ),
    (
        ONE,
        "deniability-paper",
        "deniability: {gamma: 4/3, resampled: 2}",
        "c6399c40040af0331bf16f1648b0a8e1e0cba058dcab105c931375e0df2b9c5c",
    ),
    (
        ONE,
        "deniability",
        "deniability: {test: deterministic, k: '20', candidates: 5.0}",
        "9363f6ae70fa6eb639f05efa6bbb2f824b6351bfcb2fdff03504a1298ad53862",
    ),
    (
        SEVERAL,
        "relational",
        (
            "relational: {table_method: independent, epsilon: 0.1, rounds: 2, workloads: 3, "
            "alpha: 0.25, ways: 2}"
        ),
        "097a81d21eff0308d00c8ffca7811efe95455fa4b912a3b54f0229c49ec51459",
    ),
    (
        SEVERAL,
        "relational-paper",
        "relational: {fitted: 8, slice: 100, slices: 4}",
        "74ff5f88b19ad399eddb8045c03d04e8fcf9091ae8153085fc900e5de456739b",
    ),
]


@pytest.mark.parametrize(("text", "method", "key", "digest"), RECORDED)
def test_a_spec_with_a_former_key_has_the_digest_that_it_had(tmp_path, text, method, key, digest):
    path = tmp_path / "spec.yaml"
    path.write_text(text.replace("METHOD", method).replace("KEY", key))
    assert spec_digest(load_spec(path)) == digest


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
