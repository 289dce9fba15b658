"""The door to one coded table, as the doors of a database have it."""

from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PlanBudget, PrivateRows
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import TableRows
from cloister.schema.domain import Table


class PrivateTable(PrivateRows[TableRows]):
    """A coded table behind mechanisms."""

    def __init__(
        self,
        table: Table,
        neighbours: Neighbours,
        planned: Event,
        journal: Journal,
        noise: NoiseSource,
    ) -> None:
        super().__init__(TableRows(table), neighbours, PlanBudget(planned), journal, noise)
