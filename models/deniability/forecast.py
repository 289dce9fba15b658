"""How long making and testing records takes, and how much memory, from public sizes."""

from __future__ import annotations

from cloister.models.deniability.seeding import SeedParameters
from cloister.models.task import Forecast, Task

_MADE = 2e-7
"""Seconds for each candidate and attribute: drawn, and its plausible seeds looked up."""

_TESTED = 1e-5
"""Seconds for each candidate: exact noise of its threshold."""

_INDEXED = 1.2e-7
"""Seconds for each seed and attribute that may be kept: the counts of all prefixes."""

_FINISHED = 1e-7
"""Seconds for each cell of a record that is made a row."""


def forecast_records(fit: Forecast, task: Task, seeding: SeedParameters, seeds: int) -> Forecast:
    """Seconds and bytes of the network, and of making, testing and finishing the records."""
    attributes = len(task.domain.modelled)
    cells = seeding.candidates * attributes
    prefixes = seeds * seeding.kept[1]
    seconds = fit.seconds + (_MADE + _FINISHED) * cells + _INDEXED * prefixes
    seconds += _TESTED * seeding.candidates if seeding.epsilon0 else 0.0
    memory = fit.memory + 8 * attributes * seeds + 24 * prefixes + 24 * cells
    return Forecast(round(seconds, 1), memory)
