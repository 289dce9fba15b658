"""How long a fit of the mixture and its draw take, and how much memory, from public sizes.

The constants were fitted to the CPU time of generated tables of 1,000 x 5 to 336,776 x 19 rows and
attributes, each step measured alone on one core of a server of 2.x GHz.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from models.planning.forecasts import DEVICE_CONTEXT, DRAWN_CELL, MIB, balanced_seconds
from models.protocol import Forecast
from models.sampling.sizes import EXPECTED_ROWS, OVERSAMPLING, PAIR_CELLS
from models.task import Task

_STEP = 3e-4
"""Seconds of a step of the fit, whatever its size."""

_TARGET = 4.5e-5
"""Seconds of a step for each measured table, whatever its size: a dozen calls of torch."""

_LEVEL = 9e-9
"""Seconds of a step for each level of a factor and component: a score of passes over memory."""

_CELL = 2.5e-10
"""Seconds of a step for each cell of a measured table and component: three matrix products."""

_EXPECTED = 1e-10
"""Seconds of a round for each cell of a candidate and component."""

_SCORED = 1.4e-5
"""Seconds of a round for each candidate, to score it."""

_COUNTED = 8e-9
"""Seconds for each row and candidate, to count it once."""

_CONDITIONAL = 3e-9
"""Seconds for each attribute, component and row that is drawn one attribute after the other."""

_DRAWN = 3.5e-7
"""Seconds for each attribute of a row that is drawn, those left out by balancing included.

Measured on 300 attributes of two values, less a third for other busy processes.
"""

_DRAWN_ROWS = 32_768
"""Rows of the output that are in memory in all copies at most: rows are drawn in chunks."""

_JOINED = 1.5
"""Levels of a factor that joins attributes, for each joint level of their left sides."""

_DEVICE_COPIES = 20
"""Copies of the shares of all levels on a device: parameters, moments, views, slopes, scratch."""

_DEVICE_TABLES = 3
"""Copies on a device of the largest table of two attributes, in every component."""

_RATE_TURNS = 320
"""Steps of the fit to the rates of soft constraints, in all turns."""


def forecast_fit(
    task: Task,
    sizes: Mapping[str, int],
    joint: Sequence[tuple[str, ...]],
    schedule: tuple[int, int, int],
    components: int,
    candidates: int,
) -> Forecast:
    """Seconds of a fit on the processor and bytes, and those of drawing the output.

    ``sizes`` are the greatest numbers of bins, ``joint`` the joint tables of hard constraints;
    ``schedule`` the rounds, the steps after each, and those of the last fit.
    """
    rounds, steps, last = schedule
    levels, pair = sum(sizes.values()), _typical_pair(sizes)
    joined = _JOINED * sum(math.prod(sizes[name] for name in names[:-1]) for names in joint)
    tables = [_step(levels, number, pair, components) for number in (rounds / 2, rounds)]
    inside = tables[1] + _LEVEL * joined * components
    fit = rounds * steps * tables[0] + last * inside
    choose = rounds * candidates * (_SCORED + _EXPECTED * pair * components)
    count = _COUNTED * task.data_rows * candidates
    expect = _CONDITIONAL * EXPECTED_ROWS * len(sizes) * components if joint else 0.0
    weigh = _RATE_TURNS * inside if task.soft else 0.0
    draw = balanced_seconds(task.output_rows, len(sizes))
    draw += _DRAWN * OVERSAMPLING * task.output_rows * len(sizes)
    drawn = OVERSAMPLING * min(task.output_rows, _DRAWN_ROWS) * len(sizes) * DRAWN_CELL
    work = 12 * components * (EXPECTED_ROWS if joint else levels)
    on_device = _DEVICE_COPIES * (levels + joined) + _DEVICE_TABLES * PAIR_CELLS
    return Forecast(
        seconds=round(fit + choose + count + expect + weigh + draw, 1),
        memory=round(200 * MIB + work + drawn + 40 * max(task.data_rows, task.output_rows)),
        device_memory=round(DEVICE_CONTEXT + 4 * components * on_device),
    )


def _step(levels: int, tables: float, pair: float, components: int) -> float:
    """Seconds of one step of the fit to so many measured tables of typical size."""
    return _STEP + tables * (_TARGET + _CELL * pair * components) + _LEVEL * levels * components


def _typical_pair(sizes: Mapping[str, int]) -> float:
    """Cells of a pair on average, of those that are candidates."""
    cells = [one * other for one, other in combinations(sizes.values(), 2)]
    small = [own for own in cells if own <= PAIR_CELLS]
    return sum(small) / len(small) if small else float(max(sizes.values(), default=1))
