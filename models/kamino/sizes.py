"""Public sizes of what Kamino trains: units of attributes, and how wide their embeddings are."""

from __future__ import annotations

from collections.abc import Sequence

EMBEDDING_WIDTH = 24
"""Dimensions of an embedded level."""

LARGEST_BLOCK = 2048
"""Rows that are computed at once at most; see `cloister.privacy.queries.clipped_gradients`."""

Runs = tuple[tuple[int, ...], ...]
"""Places of the attributes of each unit."""


def single_runs(sizes: Sequence[int]) -> Runs:
    """Each attribute on its own."""
    return tuple((place,) for place in range(len(sizes)))
