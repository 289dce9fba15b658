"""Which rows a request reads: those of one table, or of several."""

from __future__ import annotations

from typing import Any

from cloister.models.task import Task
from cloister.tasks.data.open_database import DatabaseSource
from cloister.tasks.data.open_table import TableSource
from cloister.tasks.data.session import RowSource
from cloister.tasks.requests.public_context import public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest


def source_of(request: ResolvedRequest) -> RowSource[Any, Any]:
    """The source of the rows that a spec declares."""
    return TableSource() if isinstance(public_context_of(request).task, Task) else DatabaseSource()
