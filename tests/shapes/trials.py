"""Releases of shapes whose figures are shown."""

from __future__ import annotations

import pandas as pd
from shape import release_once

from cloister.constraints.counting import count_violations


def delivered(shape, epsilon, method, delta="1e-6"):
    """A release of as many rows as were asked for, none of which breaks a hard constraint."""
    trial = release_once(shape, epsilon, method, delta)
    assert trial.synthetic.rows == trial.task.output_rows
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)
    return trial


def show(name, figures):
    table = pd.DataFrame(figures)
    lines = [f"{own}: {table[own].mean():.3f} (sd {table[own].std():.3f})" for own in table]
    print(f"\n{name}, {len(table)} releases\n  " + "\n  ".join(lines))
