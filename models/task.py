"""What a release is planned from: public inputs only, and a privacy budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from cloister.constraints import DenialConstraint
from cloister.constraints.across import AcrossConstraint
from cloister.devices import CPU, Device
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.declarations import (
    DeniabilitySpec,
    DPViewSpec,
    Guarantee,
    RelationalSpec,
    Sampling,
)
from cloister.schema.domain import Domain
from cloister.schema.relations import Schema

BY_PUBLIC_FACTS = DeniabilitySpec()
"""Everything about records made from seeds is chosen by public facts."""


VIEWS_BY_PUBLIC_FACTS = DPViewSpec()
"""Everything about views is chosen by public facts."""


RELATED_BY_PUBLIC_FACTS = RelationalSpec()
"""Everything about relationships is chosen by public facts."""


@dataclass(frozen=True)
class Persons:
    """The privacy units of a table whose rows belong to persons; public.

    ``key`` names the person of a row, all rows of a person agree on ``attributes``. ``number`` is
    the declared number of persons; None if it is to be measured.
    """

    key: str
    attributes: tuple[str, ...]
    number: int | None = None


@dataclass(frozen=True)
class RowSampling:
    """How rows are wanted under soft constraints; public.

    ``way`` is inside supports or sequential, None for the one that public facts suggest. Of the
    sequential way: ``resampled``, the share of each attribute's cells that are drawn anew, and
    ``tries`` of accept-reject, None for direct draws.
    """

    way: Sampling | None = None
    resampled: float = 0.0
    tries: int | None = None


AS_USUAL = RowSampling()
"""Rows are drawn in the way that public facts suggest."""


@dataclass(frozen=True)
class Task:
    """The public inputs of a synthesis: columns, constraints, sizes, neighbouring relation.

    ``data_rows`` is the declared number of rows of the data, ``wanted_rows`` that of the output
    where another one is wanted; neither is the true number of rows, which stays behind the door.
    ``persons`` are the privacy units where one may have several rows; rows of persons are drawn
    under values of the attributes ``given``. ``sampling`` is how rows are drawn under soft
    constraints, ``dpview`` how views are counted and linked. ``guarantee`` is what
    records made from seeds are released under, and ``deniability`` how they are made. ``device`` is
    where tensors are computed, which changes neither queries nor noise.
    """

    domain: Domain
    constraints: tuple[DenialConstraint, ...]
    data_rows: int
    neighbours: Neighbours
    wanted_rows: int | None = None
    persons: Persons | None = None
    guarantee: Guarantee = "differential-privacy"
    deniability: DeniabilitySpec = BY_PUBLIC_FACTS
    sampling: RowSampling = AS_USUAL
    dpview: DPViewSpec = VIEWS_BY_PUBLIC_FACTS
    device: Device = CPU
    given: tuple[str, ...] = ()

    @property
    def output_rows(self) -> int:
        """How many rows to release: as many as the data has, unless another number is wanted."""
        return self.data_rows if self.wanted_rows is None else self.wanted_rows

    @property
    def hard(self) -> tuple[DenialConstraint, ...]:
        """The constraints that no row may violate."""
        return tuple(constraint for constraint in self.constraints if constraint.hard)

    @property
    def soft(self) -> tuple[DenialConstraint, ...]:
        """The constraints whose violation rate is to be kept.

        Constraints on keys are left out, since keys are numbered afresh.
        """
        return tuple(
            c for c in self.constraints if not c.hard and not any(map(self._is_key, c.attributes))
        )

    @property
    def measured_soft(self) -> tuple[DenialConstraint, ...]:
        """Those of the soft constraints whose rate the data are asked for: none is known."""
        return tuple(constraint for constraint in self.soft if constraint.known is None)

    @property
    def weighted_soft(self) -> tuple[DenialConstraint, ...]:
        """Those of the soft constraints whose weight is known."""
        return tuple(c for c in self.soft if c.known and c.known.weight is not None)

    def _is_key(self, name: str) -> bool:
        return self.domain[name].kind == "key"


@dataclass(frozen=True)
class DatabaseTask:
    """The public inputs of a synthesis of several tables that refer to each other.

    ``neighbours`` are of the privacy unit; those of each task bound the rows of its table that one
    unit changes. Constraints ``across`` a foreign key are on rows of two tables. ``relational`` is
    how tables are related.
    """

    schema: Schema
    tables: Mapping[str, Task]
    neighbours: Neighbours
    across: tuple[AcrossConstraint, ...] = ()
    relational: RelationalSpec = RELATED_BY_PUBLIC_FACTS

    @property
    def constraints(self) -> tuple[DenialConstraint, ...]:
        """The constraints of all tables, each on rows of its own."""
        return tuple(rule for task in self.tables.values() for rule in task.constraints)

    @property
    def data_rows(self) -> int:
        """The declared number of rows of the table of units."""
        return self.tables[self.schema.lead].data_rows

    @property
    def output_rows(self) -> int:
        """How many rows of the table of units are to be released."""
        return self.tables[self.schema.lead].output_rows


@dataclass(frozen=True)
class Budget:
    """A privacy budget, exact."""

    epsilon: Fraction
    delta: Fraction


AnyTask = Task | DatabaseTask
