"""What a whole release will need, from public inputs: tools, data, fit, output and evaluation."""

from __future__ import annotations

from cloister.models.plan import AnyPlan, Forecast
from cloister.models.task import Task
from cloister.schema.domain import Domain, code_type
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest

_START = 14.0
"""Seconds of a release of next to nothing: loading libraries, a Prefect server for its time,
MLflow, DVC. Measured on 1,000 rows with ``--evaluate none``, without the fit."""

NEW_HOME = 8.0
"""Seconds more of the first release of a home, which makes the databases of Prefect and MLflow.
Measured on the same rows: 6 for Prefect's, 2 for MLflow's."""

_START_BYTES = 450 << 20
"""Bytes that the libraries of a release take."""

_CELL = 2.5e-7
"""Seconds for each cell of table and output: read, checked, coded, written, and read again."""

_BATCH_CELLS = 1 << 22
"""Cells that are read or written at a time at most."""

_BATCH_BYTES = 50
"""Bytes for each cell of them. Measured: 38 for yes and no, 56 for texts, numbers and dates."""

_QUICK = (3.0, 9e-7)
"""Seconds of quick measures, of loading what they need, and those for each cell of table and
output."""

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
    memory = _START_BYTES + _memory(tasks, plan)
    return Forecast(round(seconds, 1), memory, plan.forecast.device_memory)


def _memory(tasks: list[Task], plan: AnyPlan) -> int:
    """Bytes of the codes of table and output, and of the step that needs most beside them."""
    real = sum(_held(task.domain, task.data_rows) for task in tasks)
    drawn = sum(_held(task.domain, task.output_rows) for task in tasks)
    cells = sum(max(task.data_rows, task.output_rows) * len(task.domain.names) for task in tasks)
    batch = _BATCH_BYTES * min(cells, _BATCH_CELLS)
    return real + max(plan.forecast.memory, drawn + batch)


def _held(domain: Domain, rows: int) -> int:
    return rows * sum(code_type(column).itemsize for column in domain)


def _training(context: PublicContext) -> float:
    """Seconds of training models to predict the targets of one table."""
    rows = min(max(context.one.data_rows, context.one.output_rows), _LEARNT_ROWS)
    attributes = len(context.one.domain.modelled)
    return _targets(context) * attributes * (_TARGET[0] + _TARGET[1] * rows)


def _targets(context: PublicContext) -> int:
    named = len(context.spec.evaluation.targets)
    return named or min(_MOST_TARGETS, len(context.one.domain.modelled))
