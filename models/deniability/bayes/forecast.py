"""How long a fit of the network takes, and how much memory, from public sizes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cloister.models.plan import Forecast
from cloister.models.planning.forecasts import (
    COUNT,
    DRAWN_CELL,
    MIB,
    NOISE,
    balanced_seconds,
    histogram_counts,
)
from cloister.models.sampling.sizes import OVERSAMPLING
from cloister.models.task import Task

if TYPE_CHECKING:
    from cloister.models.deniability.bayes.plan import NetworkParameters, PartRows

_COUNTED = 8e-9
"""Seconds for each row and entropy, to count it once."""

_ANSWERED = 8e-3
"""Seconds for each histogram and table: its query, its answer on disk, its estimate."""

_COMPARED = 6e-5
"""Seconds for each pair of attributes whose dependence is estimated, however few rows there are."""

_DRAWN = 5e-8
"""Seconds for each cell of a row that is drawn from the network and refined to a value."""

_MOST_DRAWN = 100_000
"""Rows whose copies are in memory at a time at most."""

_START = 0.5
"""Seconds of a fit of next to nothing."""

_LIBRARIES = 200 * MIB
"""Bytes of the libraries."""

_BYTES_OF_ROW = 40
"""Bytes of a row in its part, beside its codes."""

_BYTES_OF_CELL = 24
"""Bytes of a cell of a conditional table, in all its copies."""


def forecast_network(task: Task, parameters: NetworkParameters) -> Forecast:
    """Seconds and bytes of a fit of the network, and of drawing the output from it."""
    attributes, fit = len(task.domain.modelled), forecast_network_fit(task, parameters)
    drawn = OVERSAMPLING * task.output_rows * attributes
    seconds = fit.seconds + _DRAWN * drawn + balanced_seconds(task.output_rows, attributes)
    held = OVERSAMPLING * min(task.output_rows, _MOST_DRAWN) * attributes * DRAWN_CELL
    return Forecast(round(seconds, 1), fit.memory + held)


def forecast_network_fit(task: Task, parameters: NetworkParameters) -> Forecast:
    """Seconds and bytes of a fit of the network alone."""
    inside, attributes = len(parameters.inside), len(task.domain.modelled)
    pairs, histograms = math.comb(inside, 2), histogram_counts(task)
    counted = parameters.structure_rows * pairs + parameters.parameter_rows * inside
    rows = (2 * attributes + _BYTES_OF_ROW) * task.data_rows
    memory = (
        _LIBRARIES + COUNT * histograms + rows + _BYTES_OF_CELL * parameters.most_cells * inside
    )
    seconds = _START + _COUNTED * counted + _COMPARED * pairs + NOISE * histograms
    return Forecast(round(seconds + _ANSWERED * (attributes + inside), 1), memory)


def forecast_printed(task: Task, parts: PartRows, attributes: int, cells: int) -> Forecast:
    """As :func:`forecast_fit`, of the paper's entropies and of tables with so many cells in all."""
    entropies = attributes * (attributes + 1)
    count = _COUNTED * (parts.structure * entropies + parts.parameters * attributes)
    rows = (2 * attributes + _BYTES_OF_ROW) * task.data_rows
    return Forecast(round(_START + count, 1), _LIBRARIES + rows + _BYTES_OF_CELL * cells)
