"""Which rows a request reads: those of one table, or of several."""

from __future__ import annotations

from typing import Any

from models.task import Task
from tasks.data.open_database import DatabaseSource
from tasks.data.open_table import TableSource
from tasks.data.session import RowSource
from tasks.requests.public_context import public_context_of
from tasks.requests.resolved import ResolvedRequest


def source_of(request: ResolvedRequest) -> RowSource[Any, Any]:
    """The source of the rows that a spec declares."""
    return TableSource() if isinstance(public_context_of(request).task, Task) else DatabaseSource()
