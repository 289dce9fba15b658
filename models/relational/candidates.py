"""The joint tables across a foreign key that may be measured: 2- and 3-way, public."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

MOST_CANDIDATES = 2_000
"""Joint tables among which selections are made; of more, those of two attributes alone."""


@dataclass(frozen=True)
class Workload:
    """A joint table: attributes of the parent, and of the table that refers to it."""

    parent: tuple[str, ...]
    child: tuple[str, ...]


def workloads(parent: Sequence[str], child: Sequence[str]) -> tuple[Workload, ...]:
    """The joint tables of two and three attributes, one of each side at least."""
    two = tuple(Workload((one,), (other,)) for one in parent for other in child)
    three = tuple(_of_three(parent, child))
    return two + three if len(two) + len(three) <= MOST_CANDIDATES else two


def _of_three(parent: Sequence[str], child: Sequence[str]) -> Iterator[Workload]:
    for pair in combinations(parent, 2):
        yield from (Workload(pair, (other,)) for other in child)
    for pair in combinations(child, 2):
        yield from (Workload((one,), pair) for one in parent)
