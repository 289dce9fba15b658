"""Races, guards, transactions and leases are tested on both databases.

What Python alone decides is tested on PostgreSQL in the slow suite.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

on_both = pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)


def on(day: str) -> Callable[[], datetime]:
    """The clock of a ledger on this day."""
    return lambda: datetime.fromisoformat(day).replace(tzinfo=UTC)
