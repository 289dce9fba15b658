"""The schema sequence, from public sizes and constraints.

Source: Kamino Algorithm 4; section 4.3 for very large domains, which come last and are drawn from
independent noisy histograms inside the supports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cloister.constraints import DenialConstraint, functional_dependency
from cloister.models.discretization.bins import NUMERIC_BINS
from cloister.schema.columns import Grid
from cloister.schema.domain import Domain, declared_cells

NETWORKED_LEVELS = 256
"""Levels of an attribute at most, to be modelled jointly with others."""


def public_sizes(domain: Domain, most: int = NUMERIC_BINS) -> dict[str, int]:
    """The greatest number of bins of each modelled attribute; about ``most`` of numeric ones."""
    sizes = {}
    for name in domain.modelled:
        column = domain[name]
        cells = declared_cells(column).size
        apart = 2 * len(column.special_codes) + 2 if isinstance(column, Grid) else 0
        sizes[name] = min(cells, most + apart) if isinstance(column, Grid) else cells
    return sizes


def schema_sequence(
    sizes: Mapping[str, int], constraints: Sequence[DenialConstraint]
) -> tuple[str, ...]:
    """Attributes of functional dependencies first, smaller left sides before larger.

    Left sides are as large as the product of their attributes. Then the rest by size.

    Attributes of more than ``NETWORKED_LEVELS`` levels come last, in the same order among
    themselves.
    """
    return _sequence(sizes, constraints, _product)


def printed_sequence(
    sizes: Mapping[str, int], constraints: Sequence[DenialConstraint]
) -> tuple[str, ...]:
    """As :func:`schema_sequence`, with left sides as large as their smallest attribute.

    Source: Kamino section 4.3, as printed.
    """
    return _sequence(sizes, constraints, _least)


def _sequence(
    sizes: Mapping[str, int],
    constraints: Sequence[DenialConstraint],
    size_of_left: Callable[[Mapping[str, int], Sequence[str]], float],
) -> tuple[str, ...]:
    dependencies = [d for c in constraints if (d := functional_dependency(c)) is not None]
    modelled = [d for d in dependencies if all(name in sizes for name in (*d[0], d[1]))]
    sequence: list[str] = []
    for left, right in sorted(modelled, key=lambda dependency: size_of_left(sizes, dependency[0])):
        sequence += [*sorted(left, key=sizes.__getitem__), right]
    sequence += sorted(sizes, key=sizes.__getitem__)
    unique = dict.fromkeys(sequence)
    return tuple(sorted(unique, key=lambda name: sizes[name] > NETWORKED_LEVELS))


def count_networked(sizes: Mapping[str, int]) -> int:
    """How many attributes, from the front of the sequence, are modelled jointly."""
    return sum(size <= NETWORKED_LEVELS for size in sizes.values())


def _least(sizes: Mapping[str, int], names: Sequence[str]) -> float:
    return min((sizes[name] for name in names), default=1)


def _product(sizes: Mapping[str, int], names: Sequence[str]) -> float:
    product = 1.0
    for name in names:
        product *= sizes[name]
    return product
