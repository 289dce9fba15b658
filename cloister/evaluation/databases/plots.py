"""The relationships of several tables drawn as PNG figures, and written as CSV files.

Privacy: as internal as the evaluation itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cloister.evaluation.databases.relations import ForeignKeyMeasures
from cloister.evaluation.databases.report import DatabaseEvaluation
from cloister.evaluation.marginals import marginal_records
from cloister.evaluation.plots import REAL, SYNTHETIC, figure_label, title_axes, write_files

_MOST_DEGREES = 30
"""Degrees that a figure shows; greater ones are added to the last."""

_WIDTH, _HEIGHT = 8.5, 2.2
"""Inches of a figure, and of each foreign key in it."""

_BAR = 0.4
"""Width of a bar, where degrees are 1 apart: a pair of them leaves a gap to the next."""

_MOST_FIGURES = 12
"""Foreign keys at most in one figure, those that differ most."""


def write_relations(evaluation: DatabaseEvaluation, folder: Path) -> list[Path]:
    """Draw degrees and write the measures of relationships into ``folder``; the paths of the files.

    Raises:
        StorageError: the folder cannot be written.
    """
    records = {
        "relations.csv": list(_records(evaluation)),
        "relation_marginals.csv": [
            {"relation": _label(relation), **record}
            for relation in evaluation.relations
            for record in marginal_records(relation.marginals)
        ],
    }
    figures = {"degrees.png": _degrees_figure(evaluation)} if evaluation.relations else {}
    return write_files(folder, figures, records)


def _records(evaluation: DatabaseEvaluation) -> Iterator[dict[str, object]]:
    for relation in evaluation.relations:
        for measure, value in relation.metrics().items():
            yield {"relation": _label(relation), "measure": measure, "value": value}


def _label(relation: ForeignKeyMeasures) -> str:
    return f"{relation.table}.{relation.column} -> {relation.parent}"


def _degrees_figure(evaluation: DatabaseEvaluation) -> Figure:
    shown = sorted(evaluation.relations, key=lambda own: -own.degrees_half_l1)[:_MOST_FIGURES]
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(shown)), layout="constrained")
    all_axes = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
    for axes, relation in zip(all_axes, shown, strict=True):
        _draw_degrees(axes, relation)
    return figure


def _draw_degrees(axes: Axes, relation: ForeignKeyMeasures) -> None:
    real, synthetic = (_cut(shares) for shares in relation.degrees)
    places = np.arange(len(real))
    axes.bar(places - _BAR / 2, real, width=_BAR, color=REAL, label="real")
    axes.bar(places + _BAR / 2, synthetic, width=_BAR, color=SYNTHETIC, label="synthetic")
    axes.legend(frameon=False, fontsize=8)
    below = f"rows of {figure_label(relation.table)} that refer to the same one"
    title_axes(axes, figure_label(_label(relation)), below)


def _cut(shares: np.ndarray) -> np.ndarray:
    """The shares (degrees,) that are shown, the last of all greater ones too."""
    if len(shares) <= _MOST_DEGREES:
        return shares
    return np.append(shares[: _MOST_DEGREES - 1], shares[_MOST_DEGREES - 1 :].sum())
