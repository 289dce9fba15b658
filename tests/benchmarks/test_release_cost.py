"""Processor time and memory of a whole release, against what `plan` forecasts."""

import os

import pytest
import yaml
from census import census
from questionnaire import questionnaire

from cloister.benchmarks.commands import run_cloister

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(14_400)]  # seconds
SHAPES = {
    "census": lambda: census(50_000),
    "long-census": lambda: census(500_000),
    "questionnaire": questionnaire,
}
METHODS = (
    "mixture",
    "independent",
    "kamino",
    "kamino-paper",
    "dpview",
    "dpview+",
    "dpview-paper",
    "copula",
    "copula-paper",
    "bayes",
    "deniability",
    "deniability-paper",
)
"""Those whose steps differ: the others leave some out, or take others in turn."""
HEADINGS = ("method", "CPU s by the plan", "CPU s", "MiB by the plan", "MiB")
FACTOR = 2
"""Between a forecast and what was measured at most."""


@pytest.mark.parametrize("shape", SHAPES)
def test_releases_take_what_their_plans_say(shape, tmp_path, record):
    table = SHAPES[shape]()
    spec = table.write(tmp_path)
    environment = os.environ | {"CLOISTER_HOME": str(tmp_path / "home")}
    lines, ratios = [], []
    for method in ["independent", *METHODS]:  # the first one makes the home
        told, cost = told_and_taken(spec, method, environment)
        ratios += [cost.cpu_seconds / told["seconds"], cost.memory / told["memory"]]
        lines.append(
            (
                method,
                f"{told['seconds']:.0f}",
                f"{cost.cpu_seconds:.0f}",
                f"{told['memory'] >> 20}",
                f"{cost.memory >> 20}",
            )
        )
    rows, columns = table.frame.shape
    title = f"`cloister release --evaluate none` of {rows:,} rows of {columns} columns, epsilon 1"
    record(f"release-cost-{shape}", title, HEADINGS, lines[1:])
    assert all(1 / FACTOR < ratio < FACTOR for ratio in ratios[2:])


def told_and_taken(spec, method, environment):
    """The forecast of a plan, and the cost of the release."""
    content = yaml.safe_load(spec.read_text())
    content["release"]["method"] = method
    content["release"].pop("guarantee", None)
    if method.startswith("deniability"):
        content["release"]["guarantee"] = "plausible-deniability"
    spec.write_text(yaml.safe_dump(content))
    told = run_cloister(["plan", str(spec), "--evaluate", "none"], environment).content
    cost = run_cloister(["release", str(spec), "--evaluate", "none"], environment).cost
    return told["forecast"], cost
