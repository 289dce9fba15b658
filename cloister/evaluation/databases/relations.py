"""Measures of relationships between tables: references, degrees, joint tables across a key, joins.

Privacy: computed from real rows without noise; internal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.evaluation.databases.joint_measures import compare_across, compare_joins
from cloister.evaluation.marginals import Marginals
from cloister.evaluation.queries import RangeQueries
from cloister.schema.relations.database import MISSING, Database, ForeignKey
from cloister.schema.relations.joins import parent_rows

Pair = tuple[float, float]
"""A figure of the real and of the synthetic tables."""


@dataclass(frozen=True)
class ForeignKeyMeasures:
    """Measures of one foreign key, pairs real and synthetic.

    ``rows`` refer to one that is there; ``orphans`` to none, though they should; ``beyond`` are
    rows with more than the ``bound`` that refer to them. ``degrees`` are the shares of rows with 0,
    1, ... that refer to them.
    """

    table: str
    column: str
    parent: str
    bound: int
    rows: Pair
    orphans: Pair
    mean_degree: Pair
    largest_degree: Pair
    beyond: Pair
    degrees: tuple[Floats, Floats]
    marginals: tuple[Marginals, ...]
    queries: RangeQueries | None

    @property
    def degrees_half_l1(self) -> float:
        """Half the L1 distance of the distributions of degrees: total variation, 0 to 1."""
        return float(np.abs(self.degrees[0] - self.degrees[1]).sum() / 2)

    def metrics(self) -> dict[str, float]:
        """One number for each measure."""
        figures = {
            "degrees.half_l1": self.degrees_half_l1,
            "degrees.mean_difference": abs(self.mean_degree[0] - self.mean_degree[1]),
            "orphans": self.orphans[1],
            "beyond_bound": self.beyond[1],
        }
        figures |= {f"marginals.{way.ways}_way.half_l1": way.half_l1 for way in self.marginals}
        return figures | ({"joins.mean_error": self.queries.mean_error} if self.queries else {})

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, fit for JSON."""
        pairs = ("rows", "orphans", "mean_degree", "largest_degree", "beyond")
        return {
            "table": self.table,
            "column": self.column,
            "parent": self.parent,
            "bound": self.bound,
            **{
                name: dict(zip(("real", "synthetic"), getattr(self, name), strict=True))
                for name in pairs
            },
            "degrees_half_l1": self.degrees_half_l1,
            "marginals": [way.to_dict() for way in self.marginals],
            **({"joins": self.queries.to_dict()} if self.queries else {}),
        }


def compare_relation(real: Database, synthetic: Database, key: ForeignKey) -> ForeignKeyMeasures:
    """The measures of a foreign key in two databases of one schema."""
    one, other = (_References.of(database, key) for database in (real, synthetic))
    most = max(one.largest_degree, other.largest_degree, key.max_rows)
    return ForeignKeyMeasures(
        key.table,
        key.column,
        key.parent,
        key.max_rows,
        rows=(one.rows, other.rows),
        orphans=(one.orphans, other.orphans),
        mean_degree=(one.mean_degree, other.mean_degree),
        largest_degree=(one.largest_degree, other.largest_degree),
        beyond=(one.beyond(key.max_rows), other.beyond(key.max_rows)),
        degrees=(one.shares(most), other.shares(most)),
        marginals=compare_across(real, synthetic, key),
        queries=compare_joins(real, synthetic, key),
    )


def duplicate_links(database: Database, table: str) -> int:
    """Rows of a table of two references or more that name the same rows as an earlier one."""
    keys = database.schema.parents_of(table)
    if len(keys) < 2 or not database.tables[table].rows:
        return 0
    named = np.stack([database.references(key) for key in keys], axis=1)
    whole = named[(named >= 0).all(1)]
    return len(whole) - len(np.unique(whole, axis=0))


@dataclass(frozen=True, eq=False)
class _References:
    """A foreign key in one database: ``degrees`` (parents,) are rows that refer to each row."""

    degrees: Integers
    rows: int
    orphans: int

    @classmethod
    def of(cls, database: Database, key: ForeignKey) -> _References:
        parents = parent_rows(database, key)
        linked = parents >= 0
        degrees = np.bincount(parents[linked], minlength=database.tables[key.parent].rows)
        wanted = database.references(key) != MISSING
        return cls(degrees, int(linked.sum()), int((wanted & ~linked).sum()))

    @property
    def mean_degree(self) -> float:
        return float(self.degrees.mean()) if len(self.degrees) else 0.0

    @property
    def largest_degree(self) -> int:
        return int(self.degrees.max(initial=0))

    def beyond(self, bound: int) -> int:
        """Rows with more that refer to them than a bound."""
        return int((self.degrees > bound).sum())

    def shares(self, most: int) -> Floats:
        """The shares (most + 1,) of rows by degree; greater degrees count as ``most``."""
        counts = np.bincount(np.minimum(self.degrees, most), minlength=most + 1)
        return np.asarray(counts / max(len(self.degrees), 1))
