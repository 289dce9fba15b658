"""Releases of shapes whose figures are shown."""

import os
from collections.abc import Iterator

import pandas as pd
from shape import Shape, Trial, release_once

from cloister.constraints.counting import count_violations
from cloister.evaluation.marginals import compare_marginals
from cloister.privacy.mechanisms.randomness import NoiseSource

RELEASES = int(os.environ.get("CLOISTER_TEST_RELEASES", "3"))
"""Releases of each shape: figures are shown with their deviation."""


def releases(
    shape: Shape, epsilon: float, method: str = "mixture", delta: str = "1e-6"
) -> Iterator[Trial]:
    """Releases that have as many rows as were asked for, none of which breaks a hard constraint."""
    for _ in range(RELEASES):
        trial = release_once(shape, epsilon, method, delta, noise=NoiseSource())
        assert trial.synthetic.rows == trial.task.output_rows
        assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)
        yield trial


def marginal_errors(trial: Trial, of: str = "") -> dict[str, float]:
    """Half L1 distances of the tables of one column, of two, and of more."""
    marginals = compare_marginals(trial.real, trial.synthetic)
    return {f"{way.ways}-way half L1{of}": way.half_l1 for way in marginals}


def show(name: str, figures: list[dict[str, float]]) -> None:
    """Print the mean and deviation of each figure over the releases."""
    table = pd.DataFrame(figures)
    lines = [
        f"{column}: {table[column].mean():.3f} (sd {table[column].std():.3f})" for column in table
    ]
    print(f"\n{name}, {len(table)} releases\n  " + "\n  ".join(lines))
