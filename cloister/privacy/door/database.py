"""The door to several tables: one for each, under one plan, one journal and one source of noise."""

from __future__ import annotations

from collections.abc import Mapping

from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PlanBudget, PrivateRows
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.relations.database import Database


class PrivateDatabase:
    """Sensitive tables behind mechanisms.

    Args:
        database: the rows, bounded to so many rows of each table a unit as ``neighbours`` says.
        planned: everything that may be asked of all tables, as reserved in the ledger.

    Privacy: the answers of one table compose with those of the others, since a unit may have rows
        in each: all events are taken out of one plan.
    """

    def __init__(
        self,
        database: Database,
        neighbours: Mapping[str, Neighbours],
        planned: Event,
        journal: Journal,
        noise: NoiseSource,
    ) -> None:
        self.plan_budget = PlanBudget(planned)
        self._secure = noise.secure
        self._doors = {
            name: PrivateRows(TableRows(table), neighbours[name], self.plan_budget, journal, noise)
            for name, table in database.tables.items()
        }

    @property
    def secure(self) -> bool:
        """Whether the noise is secret; rows behind a seeded source are not private."""
        return self._secure

    def table(self, name: str) -> PrivateRows[TableRows]:
        """The door to one table."""
        return self._doors[name]
