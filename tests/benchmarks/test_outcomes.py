"""Classifiers, detection and joint tables of rows held out, for methods on ten tables."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from census import census
from loans import loans
from outcomes import applicants, campaign, failures, screenings
from shape import release_rows
from stays import stays
from trials import RELEASES, show

from cloister.benchmarks.measures.rulers import hold_out, measure_rows
from cloister.evaluation.targets import targets_of
from cloister.models.task import table_task
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import validate_rows

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(14_400)]  # seconds

SPECS = Path(__file__).resolve().parents[2] / "data" / "specs"
METHODS = tuple(os.environ.get("CLOISTER_TEST_METHODS", "mixture,kamino,independent").split(","))
EPSILON = float(os.environ.get("CLOISTER_TEST_EPSILON", "1"))
MOST_TARGETS = 4  # evenly spaced, where more are declared
TUNED_ON = ("adult", "loans", "screenings", "failures", "applicants")
JUDGED_ON = ("br2000", "tax", "census", "stays", "campaign")
SHAPES = {
    "loans": loans,
    "screenings": screenings,
    "failures": failures,
    "applicants": applicants,
    "campaign": campaign,
    "census": census,
    "stays": stays,
}
FILES = {"adult": "adult.csv", "br2000": "br2000.csv", "tax": "tax30k.csv"}


@pytest.mark.parametrize("name", [*TUNED_ON, *JUDGED_ON])
def test_rows_held_out(real_table, name):
    table, task, targets = made(name) if name in SHAPES else published(real_table, name)
    used, held_out = hold_out(table)
    task = replace(task, data_rows=used.rows, constraints=task.hard)
    targets = [
        targets[at]
        for at in dict.fromkeys(np.linspace(0, len(targets) - 1, MOST_TARGETS).astype(int))
    ]
    show(f"{name}, real rows", [measure_rows(used, held_out, used, targets)])
    for method in METHODS:
        trials = (
            release_rows(used, task, EPSILON, method, noise=NoiseSource()) for _ in range(RELEASES)
        )
        figures = [measure_rows(used, held_out, trial.synthetic, targets) for trial in trials]
        show(f"{name}, {method}, epsilon {EPSILON:g}", figures)


def made(name):
    shape = SHAPES[name]()
    spec = shape.declared()
    task = table_task(spec, len(shape.frame))
    valid, _ = validate_rows(shape.frame, spec)
    return task.domain.encode(valid), task, targets_of(spec.evaluation.targets, task.domain)


def published(real_table, name):
    real = real_table(name, FILES[name])
    declared = load_spec(SPECS / f"{name}.yaml").evaluation.targets
    task = replace(real.task, targets=tuple(declared))
    return real.table, task, targets_of(declared, real.table.domain)
