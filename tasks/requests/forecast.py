"""What a whole release will need, from public inputs: tools, data, fit, output and evaluation."""

from __future__ import annotations

from models.protocol import AnyPlan, Forecast
from tasks.requests.resolved import PublicContext, ResolvedRequest

_START = 14.0
"""Seconds of a release of next to nothing: loading libraries, a Prefect server for its time,
MLflow, DVC. Measured on 1,000 rows with ``--evaluate none``, without the fit."""

_START_BYTES = 450 << 20
"""Bytes that the libraries of a release take."""

_CELL = 4e-7
"""Seconds for each cell of the table and of the output: read, checked, coded, drawn, written."""

_CELL_BYTES = 80
"""Bytes for each cell of the table while it is read as text and checked."""

_QUICK = (1.5, 9e-7)
"""Seconds of quick measures, and those for each cell of table and output."""

_TARGET = (0.3, 7.5e-5)
"""Seconds for each target and attribute of training the models of a panel twice, and those for each
row that they learn from."""

_LEARNT_ROWS = 7_000
"""Rows from which on training takes no longer: models learn from a part."""

_MOST_TARGETS = 16
"""Targets of a spec that names none."""


def forecast_of(request: ResolvedRequest, context: PublicContext, plan: AnyPlan) -> Forecast:
    """Seconds of processor time and bytes of memory of the whole command; public."""
    tasks = [part.one for part in context.tables.values()]
    cells = sum(max(task.data_rows, task.output_rows) * len(task.domain.names) for task in tasks)
    seconds = _START + _CELL * cells + plan.forecast.seconds
    if request.evaluate != "none":
        seconds += _QUICK[0] + _QUICK[1] * cells
    if request.evaluate == "full":
        seconds += sum(map(_training, context.tables.values()))
    memory = _START_BYTES + max(plan.forecast.memory, _CELL_BYTES * cells)
    return Forecast(round(seconds, 1), memory)


def _training(context: PublicContext) -> float:
    """Seconds of training models to predict the targets of one table."""
    rows = min(max(context.one.data_rows, context.one.output_rows), _LEARNT_ROWS)
    attributes = len(context.one.domain.modelled)
    return _targets(context) * attributes * (_TARGET[0] + _TARGET[1] * rows)


def _targets(context: PublicContext) -> int:
    named = len(context.spec.evaluation.targets)
    return named or min(_MOST_TARGETS, len(context.one.domain.modelled))
