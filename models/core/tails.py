"""Tails of a histogram: outer cells with less mass than noise follow the tail that is seen.

Noise in many empty cells far out adds up to mass that is not there, and moves means and deviations.
Here the cells beyond some cell follow one smooth decreasing density, a truncated generalized Pareto
distribution (exponential as a special case), fitted to their noisy counts. Post-processing.

Source: exceedances over a high threshold after Pickands, "Statistical inference using extreme order
statistics" (1975); here fitted by least squares, since the counts have Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from cloister.arrays import Booleans, Floats
from cloister.models.core.noisy_table import to_shares

_SHAPES = (0.0, 0.1, 0.2, 0.35)
"""Shapes of tails: 0 is exponential, from 0.5 on the variance is infinite; 0.5 fitted noise."""

_FREEDOMS = (2.0, 2.5, 2.5, 2.5)
"""Fitted numbers of a tail of each shape: its rows, its scale, and half a number for the shape.

With 3 deviations of Pareto tails came out a fifth too small, with 2 those of gammas too large.
"""

_FAR = 8.0
"""What is added to these numbers for a tail whose scale is the whole range, in proportion to it.

Without it the noise of many empty cells together made one tail of fifty far too long.
"""

_SCALES = 24
"""Scales of tails that are tried, evenly on their logarithm; twice as many changed nothing."""

_LEAST_SCALE = 1e-3
"""The least of them as a share of the tail's range, ..."""

_LEAST_WIDTH = 0.2
"""... or of its narrowest cell, whichever is greater."""

_RISKIER = 1.0
"""Variances of a count's noise by which the risk of a tail is greater that weighs e times less.

At 0.5 tails came out too short, as that of least risk does; at 2 long ones, that noise drew, count.
"""

_LEAST_WEIGHT = 0.01
"""Weight of a tail, as a share of the greatest, below which it is left out: most are."""

_SURE = 1e-6
"""Cells whose noise is next to none: where no others are, the rows of a tail are known."""

_FITTED_CELLS = 512
"""Cells to which a tail is fitted at most; of more, neighbours are added up."""

_WINDOWS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
"""Numbers of neighbouring cells that are searched together for mass."""

_FALSE_ALARMS = 0.01
"""Probability that mass is found in empty cells by noise alone, in a whole histogram."""

_FALSE_SPIKES = 0.002
"""The same of one cell that stands alone, which may lie far out and so weigh much."""

_NEAR = 3
"""Cells on either side of one that stands alone."""

_CALM = 2.0
"""Standard deviations of the noise below which the cells on either side hold no mass."""


_LEAST_TAIL = 3
"""Cells of a tail at least: one more than the numbers that are fitted to the lightest."""

_CUTS = 64
"""Cells at most from which a tail may begin."""

_MOST_IN_TAIL = 1 - 1e-6
"""Share of all rows in a tail at most, if there are other cells: these never share nothing."""


@dataclass(frozen=True)
class EstimatedCounts:
    """An estimate of counts (cells,), and the estimated sum of its squared errors."""

    counts: Floats
    risk: float


@dataclass(frozen=True)
class NoisyCells:
    """Noisy ``counts`` (cells,) of cells of one attribute that hold ``rows`` rows in all.

    ``deviation`` is the standard deviation of each count's noise, in rows. ``edges`` (cells, 2) are
    the ends of cells that have an order, but for those ``alone`` (cells,); None without an order.
    """

    counts: Floats
    alone: Booleans
    edges: Floats | None
    deviation: float
    rows: float

    @property
    def mirrored(self) -> NoisyCells:
        """The same cells in the other order."""
        edges = None if self.edges is None else -self.edges[::-1, ::-1]
        return replace(self, counts=self.counts[::-1], alone=self.alone[::-1], edges=edges)

    def part(self, cells: Booleans, rows: float) -> NoisyCells:
        """Some of the cells (cells,), with another number of rows."""
        edges = None if self.edges is None else self.edges[cells]
        return NoisyCells(self.counts[cells], self.alone[cells], edges, self.deviation, rows)


@dataclass(frozen=True)
class Tail:
    """Rows that decrease from a cell on: ``rows`` of them, ``shares`` (cells,) that sum to one.

    ``risk`` estimates the sum of squared errors of the cells' counts.
    """

    rows: float
    shares: Floats
    risk: float


@dataclass(frozen=True)
class Remainder:
    """The rows that other cells leave to a tail: all rows less theirs, with the noise of theirs.

    ``cells`` is the number of other cells; without any, the tail has exactly these rows.
    """

    rows: float
    cells: float

    @property
    def weight(self) -> float:
        """Its weight beside a count: the inverse of its variance, in those of a count's noise."""
        return 1.0 / max(self.cells, _SURE)


Body = Callable[[NoisyCells], EstimatedCounts]
"""How cells are estimated without tails."""


def with_tails(cells: NoisyCells, body: Body) -> Floats:
    """Estimated counts (cells,): tails at both ends, if there are any, and a ``body``."""
    counts, rest, inside = np.empty(len(cells.counts)), cells, np.arange(len(cells.counts))
    for lower in (False, True):
        if lower:
            rest, inside = rest.mirrored, inside[::-1]
        if (cut := _best_cut(rest, body)) is not None:
            outer, tail = cut
            counts[inside[outer]] = tail
            if outer.all():
                return counts
            rest, inside = rest.part(~outer, rest.rows - float(tail.sum())), inside[~outer]
    counts[inside] = to_shares(body(rest).counts, rest.rows) * rest.rows
    return counts


def _best_cut(cells: NoisyCells, body: Body) -> tuple[Booleans, Floats] | None:
    """The cells (cells,) of the tail with which the estimate of all has least risk, and its counts.

    None if no tail helps.
    """
    if cells.edges is None:
        return None
    spikes = _isolated(cells.counts, cells.deviation) & ~cells.alone
    places = np.flatnonzero(~(cells.alone | spikes))
    last = len(places) - _LEAST_TAIL
    if last < 0:
        return None
    before = _cells_before_tail(cells.counts[places], cells.deviation)
    after_spike = bool(spikes[: places[min(before, last)]].any())
    if not before and spikes.any() and not after_spike:
        return None  # It would rise towards all that is sure.
    unsure = before > last or not (before or after_spike)
    best, least = None, body(cells).risk if unsure else math.inf
    for first in np.unique(np.linspace(0, min(before, last), _CUTS).astype(int)):
        outer = np.zeros(len(cells.counts), dtype=bool)
        outer[places[first:]] = True
        left = Remainder(cells.rows - float(cells.counts[~outer].sum()), float((~outer).sum()))
        tail = fit_tail(cells.counts[outer], cells.edges[outer], cells.deviation, left)
        rows = min(tail.rows, cells.rows * (1.0 if outer.all() else _MOST_IN_TAIL))
        rest = cells.part(~outer, cells.rows - rows)
        risk = tail.risk + (body(rest).risk if len(rest.counts) else 0.0)
        if risk < least:
            best, least = (outer, rows * tail.shares), risk
    return best


def fit_tail(noisy: Floats, edges: Floats, deviation: float, left: Remainder) -> Tail:
    """The tail of cells in order, none of them left out: a mean of those that their counts allow.

    Shapes: ``noisy`` (cells,); ``edges`` (cells, 2), the ends of each cell. ``deviation`` is that
    of a count's noise. What is ``left`` to the tail is one more observation: without it, strong
    noise makes every tail look good that has next to no rows.

    Source of the weights: Akaike, "On the likelihood of a model" (1978), of risks for deviances.
    """
    begins = np.arange(0, len(noisy), math.ceil(len(noisy) / _FITTED_CELLS))
    merged = np.diff(begins, append=len(noisy))
    ends = np.column_stack([edges[begins, 0], edges[begins + merged - 1, 1]])
    span, narrowest = float(edges[-1, 1] - edges[0, 0]), float(np.diff(edges).min())
    scales, shapes, freedoms = _candidates(span, narrowest)
    # Counts that were added up have more noise: divided by its deviation they all have the same.
    roots = np.sqrt(merged)
    lines = _shares(ends, scales, shapes) / roots
    counts = np.add.reduceat(noisy, begins) / roots
    squares = np.square(lines).sum(1)
    rows = np.maximum((lines @ counts + left.weight * left.rows) / (squares + left.weight), 0.0)
    errors = np.square(counts - rows[:, None] * lines).sum(1)
    errors += left.weight * np.square(rows - left.rows)
    risks = errors + 2 * deviation**2 * freedoms
    weights = np.exp((risks.min() - risks) / (_RISKIER * deviation**2))
    likely = weights >= _LEAST_WEIGHT
    weights = weights[likely] / weights[likely].sum()
    shares = weights @ _shares(edges, scales[likely], shapes[likely])
    total = float(weights @ rows[likely])
    risk = float(np.square(noisy - total * shares).sum()) + left.weight * (total - left.rows) ** 2
    risk += deviation**2 * (2 * float(weights @ freedoms[likely]) - len(noisy))
    return Tail(total, shares, risk)


@lru_cache(maxsize=64)
def _candidates(span: float, narrowest: float) -> tuple[Floats, Floats, Floats]:
    """Scales, shapes and numbers of fitted parameters of the tails that are tried; each (t,)."""
    least = max(_LEAST_WIDTH * narrowest, _LEAST_SCALE * span)
    scales = np.geomspace(least, span, _SCALES)
    freedoms = np.add.outer(_FREEDOMS, _FAR * scales / span).ravel()
    return np.tile(scales, len(_SHAPES)), np.repeat(_SHAPES, _SCALES), freedoms


def _shares(edges: Floats, scales: Floats, shapes: Floats) -> Floats:
    """Shares (t, cells) of tails that begin at the first cell and end with the last."""
    beyond = (edges - edges[0, 0])[None] / scales[:, None, None]
    heavy = np.maximum(shapes, 1e-9)[:, None, None]
    survival = np.where(
        shapes[:, None, None] > 0, np.power(1 + heavy * beyond, -1 / heavy), np.exp(-beyond)
    )
    mass = survival[..., 0] - survival[..., 1]
    total = mass.sum(1, keepdims=True)
    return np.asarray(mass / total, dtype=np.float64)


def _cells_before_tail(noisy: Floats, deviation: float) -> int:
    """How many cells, from the first, there are until the last from which on mass is certain.

    Mass is certain where the counts of some neighbouring cells are more than noise explains.
    """
    if not len(noisy):
        return 0
    sums = np.append(0.0, np.cumsum(noisy))
    lengths = [length for length in _WINDOWS if length <= len(noisy)]
    least = -deviation * float(ndtri(_FALSE_ALARMS / (len(noisy) * len(lengths))))
    certain = [
        np.flatnonzero(sums[length:] - sums[:-length] > least * math.sqrt(length))
        for length in lengths
    ]
    return 1 + max((int(places[-1]) for places in certain if len(places)), default=-1)


def _isolated(noisy: Floats, deviation: float) -> Booleans:
    """Cells (cells,) that certainly hold mass while those around them do not: a top code."""
    least = -deviation * float(ndtri(_FALSE_SPIKES / len(noisy)))
    around = np.lib.stride_tricks.sliding_window_view(np.pad(noisy, _NEAR), 2 * _NEAR + 1)
    nearby = around.sum(1) - noisy
    return (noisy > least) & (nearby < _CALM * deviation * math.sqrt(2 * _NEAR))
