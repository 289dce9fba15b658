"""Processor time and memory of a whole release, against what `plan` forecasts.

Run by .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_release_cost.py
"""

from __future__ import annotations

import os

import pytest
import yaml
from census import census

from benchmarks.commands import run_cloister

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7_200)]  # seconds
SIZES = [int(size) for size in os.environ.get("CLOISTER_TEST_SIZES", "50000,500000").split(",")]
METHODS = ("bayes", "deniability", "deniability-paper")
FACTOR = 2
"""Between a forecast and what was measured at most."""


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_a_release_takes_what_its_plan_says(method, rows, tmp_path):
    spec = census(rows).write(tmp_path)
    content = yaml.safe_load(spec.read_text())
    content["release"]["method"] = method
    if method == "bayes":
        del content["release"]["guarantee"]
    spec.write_text(yaml.safe_dump(content))
    environment = os.environ | {"CLOISTER_HOME": str(tmp_path / "home")}
    told = run_cloister(["plan", str(spec), "--evaluate", "none"], environment).content
    cost = run_cloister(["release", str(spec), "--evaluate", "none"], environment).cost
    seconds, memory = told["forecast"]["seconds"], told["forecast"]["memory"]
    print(
        f"\n| {rows:,} | {method} | {seconds:.0f} | {cost.cpu_seconds:.0f} | "
        f"{memory / 2**20:.0f} | {cost.memory / 2**20:.0f} |"
    )
    assert 1 / FACTOR < cost.cpu_seconds / seconds < FACTOR
    assert 1 / FACTOR < cost.memory / memory < FACTOR
