"""Distributions of the errors of conjunctions: the share of queries up to each error.

Source: Asghar et al., "Differentially Private Release of High-Dimensional Datasets using the
    Gaussian Copula" (arXiv 1902.01499), figures 2 to 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cloister.arrays import Floats
from cloister.benchmarks.pages.figures import Repeats, query_sets, with_binary_columns
from cloister.benchmarks.pages.plot_style import dress, line_colours
from cloister.benchmarks.runs import Run
from cloister.evaluation.plots import REAL

_LEAST = 0.5
"""Least error that is shown, in rows: the scale is logarithmic, and smaller ones are drawn here."""

_STYLES = ("-", "--", ":", "-.")
"""Styles of lines by method, where colours tell epsilons."""


def draw_distributions(repeats: Repeats) -> dict[str, Figure | None]:
    """A figure for each dataset, by its name: a panel for each set of queries."""
    shown = with_binary_columns(repeats)
    return {
        f"conjunctions-{dataset}": _panels(
            {setting: runs for setting, runs in shown.items() if setting.dataset == dataset}
        )
        for dataset in dict.fromkeys(setting.dataset for setting in shown)
    }


def _panels(repeats: Repeats) -> Figure | None:
    shown = query_sets(repeats)
    if not shown:
        return None
    columns = min(len(shown), 3)
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(2.2 + 3.9 * columns, 3.3 * lines), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, queries in zip(panels, shown, strict=False):
        _draw_panel(axes, repeats, queries)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    figure.axes[0].set_ylabel("share of queries", color=REAL, fontsize=9)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _draw_panel(axes: Axes, repeats: Repeats, queries: str) -> None:
    """A line for each setting, from the share of queries that all of them answer exactly."""
    without = []
    for (setting, runs), (colour, style) in zip(repeats.items(), _looks(repeats), strict=True):
        curves = [curve for run in runs for curve in _curves(run, queries)]
        if curves:
            shares, errors = np.mean(curves, axis=0)
            without.append(float((errors <= _LEAST).mean()))
            axes.plot(
                np.maximum(errors, _LEAST),
                shares,
                color=colour,
                linestyle=style,
                label=setting.label,
            )
    axes.set_xscale("log")
    axes.set_ylim(np.floor(10 * min(without, default=0.0)) / 10, 1.02)
    dress(axes, queries)
    axes.set_xlabel("absolute error, rows", color=REAL, fontsize=9)


def _curves(run: Run, queries: str) -> Iterator[tuple[Floats, Floats]]:
    """Shares of queries and their largest errors, of a run that was measured on these queries."""
    for measured in (run.evaluation or {}).get("conjunctions", ()):
        if measured["queries"] == queries:
            yield np.array(measured["curve"]["shares"]), np.array(measured["curve"]["errors"])


def _looks(repeats: Repeats) -> list[tuple[str, str]]:
    """Colour and style of each setting: colours tell epsilons apart, if there are several."""
    names = list(dict.fromkeys((setting.method, setting.variant) for setting in repeats))
    epsilons = list(dict.fromkeys(setting.epsilon for setting in repeats))
    colours = list(islice(line_colours(), max(len(names), len(epsilons))))
    if len(epsilons) == 1:
        return [(colours[names.index((s.method, s.variant))], _STYLES[0]) for s in repeats]
    return [
        (
            colours[epsilons.index(s.epsilon)],
            _STYLES[names.index((s.method, s.variant)) % len(_STYLES)],
        )
        for s in repeats
    ]
