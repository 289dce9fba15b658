"""Bars of what a Bayesian network tells of each attribute: Figures 1 and 2.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cloister.benchmarks.measures.networks import SHOWN
from cloister.benchmarks.pages.figures import (
    Repeats,
    Setting,
    Statistic,
    network_attributes,
    network_statistics,
)
from cloister.benchmarks.pages.plot_style import dress, line_colours
from cloister.evaluation.plots import REAL, figure_label

_GROUP = 0.8
"""Width of the bars of one attribute, of the room that it has."""

Errors = Mapping[str, Mapping[Setting, Mapping[str, Statistic]]]
"""Errors by attribute, setting and what is wrong."""


def draw_networks(repeats: Repeats) -> dict[str, Figure | None]:
    """A figure for each dataset, by its name."""
    return {
        f"network-{dataset}": _panels(
            {name: network_statistics(repeats, dataset, name) for name in attributes}
        )
        for dataset, attributes in network_attributes(repeats).items()
    }


def _panels(errors: Errors) -> Figure:
    figure = Figure(figsize=(2.5 + 0.75 * len(errors), 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_improvement(above, errors)
    _draw_accuracy(below, errors)
    below.set_xticks(range(len(errors)), [figure_label(n) for n in errors], rotation=45, ha="right")
    return figure


def _draw_improvement(axes: Axes, errors: Errors) -> None:
    """Figure 1: by how much less often the network is wrong than the released marginals are."""
    settings = list(dict.fromkeys(setting for by_name in errors.values() for setting in by_name))
    bars = {
        setting.label: [_improvement(errors[name].get(setting, {})) for name in errors]
        for setting in settings
    }
    _draw_bars(axes, bars)
    axes.axhline(0, color=REAL, linewidth=0.8)
    axes.set_ylabel("percent", color=REAL, fontsize=9)
    dress(axes, "fewer errors than by the marginals")


def _improvement(errors: Mapping[str, Statistic]) -> float:
    if not errors or not errors["marginals"].mean:
        return float("nan")
    return 100 * (1 - errors["network"].mean / errors["marginals"].mean)


def _draw_accuracy(axes: Axes, errors: Errors) -> None:
    """Figure 2, of the setting of least noise."""
    settings = {setting for by_name in errors.values() for setting in by_name}
    clearest = max(settings, key=lambda setting: setting.epsilon)
    bars = {
        name: [
            1 - error.mean if (error := errors[attribute][clearest].get(name)) else float("nan")
            for attribute in errors
        ]
        for name in SHOWN
    }
    _draw_bars(axes, bars)
    axes.set_ylabel("share of rows", color=REAL, fontsize=9)
    dress(axes, f"told rightly, {clearest.label}")


def _draw_bars(axes: Axes, bars: Mapping[str, Sequence[float]]) -> None:
    width = _GROUP / len(bars)
    drawn = zip(bars.items(), line_colours(), strict=False)
    for index, ((label, heights), colour) in enumerate(drawn):
        positions = np.arange(len(heights)) - _GROUP / 2 + (index + 0.5) * width
        axes.bar(positions, heights, width, color=colour, label=figure_label(label))
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
