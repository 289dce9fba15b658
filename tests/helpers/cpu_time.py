"""Bounds of processor time, far above what was measured: they catch another order of growth."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cpu_seconds(limit: float) -> Iterator[None]:
    """What is done inside takes less; time that others have on the same cores does not count."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < limit
