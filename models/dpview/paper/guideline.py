"""The paper's guideline for the number of attributes of a view, from domain sizes alone.

Of a standard normal table over the cells of a view, enough should lie above the noise.

Source: Lin, Yu, Huang, "DPView", section IV-C7. What is printed of the size of a view, D d / m, is
read as D^(d/m), the geometric mean; gamma is that of section IV-E3, and the threshold is ours: the
paper prints neither. With it Adult's 48,842 rows get the views of five that the paper takes.
"""

from __future__ import annotations

import math

from scipy.special import chdtr

from cloister.models.dpview.tables.rounding import GAMMA
from cloister.models.dpview.view_choice import REACH
from cloister.models.dpview.views import Sizes

_WIDTHS = range(2, 9)
"""Attributes of a view that are tried."""

_LEAST_ABOVE = 0.5
"""Least share of rows in cells that exceed the noise, for a width to be a candidate."""


_MOST_CELLS = 250_000
"""Cells of an average view at most: making larger ones agree takes minutes."""


def width_by_guideline(sizes: Sizes, epsilon: float, rows: int) -> int:
    """The greatest width with enough of a normal table above the noise; 2 if there is none."""
    mean = geometric_mean(sizes)
    widths = [w for w in _WIDTHS if w <= len(sizes) and mean**w <= _MOST_CELLS]
    enough = [w for w in widths if share_above_noise(w, sizes, epsilon, rows) >= _LEAST_ABOVE]
    return max(enough, default=2)


def geometric_mean(sizes: Sizes) -> float:
    """The geometric mean of the sizes of all attributes."""
    return math.exp(sum(map(math.log, sizes.values())) / len(sizes))


def share_above_noise(width: int, sizes: Sizes, epsilon: float, rows: int) -> float:
    """The share of a normal table's rows in cells of more rows than rho = -ln(1 - gamma) / epsilon.

    The table has ``width`` attributes, each cut into as many parts of six deviations as the
    geometric mean of all sizes. A cell at distance r from the middle holds
    rows * side^width * exp(-r^2 / 2) / (2 pi)^(width / 2), and r^2 is chi-squared.
    """
    side = 2 * REACH / geometric_mean(sizes)
    rho = -math.log(1 - GAMMA) / epsilon
    middle = math.log(rows / rho) + width * (math.log(side) - math.log(2 * math.pi) / 2)
    return float(chdtr(width, max(2 * middle, 0.0)))
