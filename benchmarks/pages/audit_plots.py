"""Plots of an audit: what tests of releases attain beside what plans claim, and power of twins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cloister.arrays import Floats
from cloister.benchmarks.pages.plot_style import COLOURS, dress
from cloister.evaluation.plots import FAINT, REAL
from cloister.tasks.home.files import replace_file

_ACROSS = 3
"""Panels beside each other."""


@dataclass(frozen=True)
class Panel:
    """How often tests miss a unit, at each false alarm: claimed at least, and shown at most."""

    title: str
    alarms: Floats
    claimed: Floats
    shown: Floats


def draw_trade_offs(panels: Sequence[Panel], path: Path) -> None:
    """Draw a PNG file of trade-offs.

    Raises:
        StorageError: it cannot be written.
    """
    lines = -(-len(panels) // _ACROSS)
    across = min(len(panels), _ACROSS)
    figure = Figure(figsize=(2.9 * across, 0.5 + 2.7 * lines), layout="constrained")
    axes = list(figure.subplots(lines, across, squeeze=False, sharex=True, sharey=True).flat)
    for each, panel in zip(axes, panels, strict=False):
        _draw_trade_off(each, panel)
    for each in axes[len(panels) :]:
        each.set_visible(False)
    figure.supxlabel("false alarms", fontsize=9, color=REAL)
    figure.supylabel("units missed", fontsize=9, color=REAL)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=across, frameon=False, fontsize=8
    )
    _write(figure, path)


def _draw_trade_off(axes: Axes, panel: Panel) -> None:
    claimed, shown = COLOURS[:2]
    axes.fill_between(panel.alarms, panel.claimed, panel.shown, color=FAINT)
    axes.plot([0, 1], [1, 0], color=REAL, linestyle=":", linewidth=1, label="a guess")
    axes.plot(panel.alarms, panel.claimed, color=claimed, label="no test is better: claimed")
    axes.plot(panel.alarms, panel.shown, color=shown, label="some test is as good: shown, 95 %")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    dress(axes, panel.title)


def draw_power(powers: Mapping[str, Mapping[int, float]], wanted: float, path: Path) -> None:
    """Draw a PNG file of the power over the number of releases, a line for each method.

    Raises:
        StorageError: it cannot be written.
    """
    figure = Figure(figsize=(4.4, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.axhline(wanted, color=REAL, linestyle=":", linewidth=1)
    for colour, (method, power) in zip(COLOURS, powers.items(), strict=False):
        axes.plot(list(power), list(power.values()), color=colour, marker="o", ms=4, label=method)
    sizes = sorted({size for power in powers.values() for size in power})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("releases", color=REAL, fontsize=9)
    dress(axes, "power")
    axes.legend(frameon=False, fontsize=8)
    _write(figure, path)


def _write(figure: Figure, path: Path) -> None:
    replace_file(path, partial(figure.savefig, dpi=100, format="png"))
