"""The joint tables across a foreign key that may be measured: 2- and 3-way, public."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from cloister.schema.relations import ForeignKey, Schema, joined_domain

MOST_CANDIDATES = 2_000
"""Joint tables among which selections are made; of more, those of two attributes alone."""


@dataclass(frozen=True)
class Workload:
    """A joint table: attributes of the parent, and of the row that refers to it."""

    parent: tuple[str, ...]
    child: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All attributes, in the order of the table's axes."""
        return (*self.parent, *self.child)


def workloads(parent: Sequence[str], child: Sequence[str]) -> tuple[Workload, ...]:
    """The joint tables of two and three attributes, one of each side at least."""
    two = tuple(Workload((one,), (other,)) for one in parent for other in child)
    three = tuple(_of_three(parent, child))
    return two + three if len(two) + len(three) <= MOST_CANDIDATES else two


def candidates(schema: Schema, key: ForeignKey, ways: int | None = None) -> tuple[Workload, ...]:
    """The joint tables of a key that may be measured, of so many attributes if ``ways`` says.

    Rows without any attribute have those of their first parent only by the tables of their next
    key; where there is none, it is the parents' own attributes that are counted.
    """
    child, parent = (domain.names for domain in joined_domain(schema, key))
    if child:
        found = workloads(parent, child)
        asked = tuple(own for own in found if ways in (None, len(own.names)))
        return asked or found
    later = [own for own in schema.parents_of(key.table) if own != key and not own.optional]
    if later:
        return ()
    pairs = (Workload(pair, ()) for pair in combinations(parent, 2))
    return (*(Workload((one,), ()) for one in parent), *pairs)


def _of_three(parent: Sequence[str], child: Sequence[str]) -> Iterator[Workload]:
    for pair in combinations(parent, 2):
        yield from (Workload(pair, (other,)) for other in child)
    for pair in combinations(child, 2):
        yield from (Workload((one,), pair) for one in parent)
