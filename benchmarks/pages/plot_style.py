"""What all plots of benchmarks have in common: colours of lines, titles and grids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from matplotlib.axes import Axes

from cloister.evaluation.plots import FAINT, LINE, SYNTHETIC

COLOURS = (
    SYNTHETIC,
    "#c2410c",
    "#6741d9",
    "#2b8a3e",
    "#a61e4d",
    "#1864ab",
    "#5c940d",
    "#862e9c",
    "#e67700",
    "#212529",
)


def line_colours() -> Iterator[str]:
    """The colours of lines, over and over."""
    while True:
        yield from COLOURS


def dress(axes: Axes, title: str, grid: Literal["x", "y"] = "y") -> None:
    """Title, grid and frame of a panel."""
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.grid(axis=grid, color=FAINT)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
