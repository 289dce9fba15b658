"""How long a fit of the mixture and its draw take, and how much memory, from public sizes.

The constants were fitted to the CPU time of generated tables of 1,000 x 5 to 336,776 x 19 rows and
attributes, each step measured alone on one core of a server of 2.x GHz.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from cloister.models.mixture.rounds.schedule import LAST_STEPS, MOST_CANDIDATES, Schedule
from cloister.models.planning import (
    DEVICE_CONTEXT,
    DRAWN_CELL,
    EXPECTED_ROWS,
    MIB,
    OVERSAMPLING,
    PAIR_CELLS,
    balanced_seconds,
)
from cloister.models.task import Forecast, Task

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

_LOOKED_UP = 3e-9
"""Seconds for each row and pair of attributes, where all pairs are counted at once."""

_COMPARED = 1e-8
"""Seconds of a choice among all pairs for each cell of one."""

_BYTES_OF_PAIR = 32
"""Bytes for each two parts of all attributes, where all pairs are counted at once."""

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
    schedule: Schedule,
    components: int,
) -> Forecast:
    """Seconds of a fit on the processor and bytes, and those of drawing the output.

    ``sizes`` are the greatest numbers of bins, ``joint`` the joint tables of hard constraints.
    """
    levels, pair = sum(sizes.values()), _typical_pair(sizes)
    if schedule.pair_parts:
        pair = min(pair, schedule.pair_parts**2)
    joined = _JOINED * sum(math.prod(sizes[name] for name in names[:-1]) for names in joint)
    tables = [
        _step(levels, number, pair, components) for number in (schedule.tables / 2, schedule.tables)
    ]
    inside = tables[1] + _LEVEL * joined * components
    fit = schedule.rounds * schedule.steps * tables[0] + LAST_STEPS * inside
    choose = _choices(schedule, task.data_rows, len(sizes), pair, components)
    expect = _CONDITIONAL * EXPECTED_ROWS * len(sizes) * components if joint else 0.0
    weigh = _RATE_TURNS * inside if task.soft else 0.0
    draw = balanced_seconds(task.output_rows, len(sizes))
    draw += _DRAWN * OVERSAMPLING * task.output_rows * len(sizes)
    drawn = OVERSAMPLING * min(task.output_rows, _DRAWN_ROWS) * len(sizes) * DRAWN_CELL
    work = 12 * components * (EXPECTED_ROWS if joint else levels)
    work += _BYTES_OF_PAIR * (schedule.pair_parts or 0) ** 2 * len(sizes) ** 2
    on_device = _DEVICE_COPIES * (levels + joined) + _DEVICE_TABLES * PAIR_CELLS
    return Forecast(
        seconds=round(fit + choose + expect + weigh + draw, 1),
        memory=round(200 * MIB + work + drawn + 40 * max(task.data_rows, task.output_rows)),
        device_memory=round(DEVICE_CONTEXT + 4 * components * on_device),
    )


def _choices(schedule: Schedule, rows: int, attributes: int, pair: float, components: int) -> float:
    """Seconds of counting the candidates, and of choosing tables among them."""
    pairs = math.comb(attributes, 2)
    if schedule.pair_parts:
        cells = pairs * schedule.pair_parts**2
        expect = schedule.rounds * _EXPECTED * cells * components
        return _LOOKED_UP * rows * pairs + expect + schedule.tables * _COMPARED * cells
    candidates = min(pairs + math.comb(attributes, 3), MOST_CANDIDATES)
    scored = schedule.rounds * (_SCORED + _EXPECTED * pair * components)
    return candidates * (_COUNTED * rows + scored)


def _step(levels: int, tables: float, pair: float, components: int) -> float:
    """Seconds of one step of the fit to so many measured tables of typical size."""
    return _STEP + tables * (_TARGET + _CELL * pair * components) + _LEVEL * levels * components


def _typical_pair(sizes: Mapping[str, int]) -> float:
    """Cells of a pair on average, of those that are candidates."""
    cells = [one * other for one, other in combinations(sizes.values(), 2)]
    small = [own for own in cells if own <= PAIR_CELLS]
    return sum(small) / len(small) if small else float(max(sizes.values(), default=1))
