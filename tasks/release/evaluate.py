"""The step that evaluates a release against its real rows: internal, kept in the private folder."""

from __future__ import annotations

from cloister.privacy.door.table import PrivateTable
from cloister.schema.domain import Table
from tasks.data.session import Spent
from tasks.evaluation.compare import Asked, Measured, compared, written
from tasks.requests.resolved import Order, world_of
from tasks.runtime.home import Home
from tasks.runtime.references import Reference
from tasks.runtime.step import step
from tasks.runtime.tables import read_synthetic


@step("evaluate", "evaluate {spent.release} ({order.evaluate})")
def measure(order: Order, spent: Spent[Table, PrivateTable], synthetic: Reference, home: Home) -> Measured:
    """Measure the synthetic table against the rows of this release.

    Privacy: the result is not private; it stays in the home and never enters a certificate.
    """
    world = world_of(order)
    table = read_synthetic(synthetic.open(), world.task)
    evaluation = compared(spent.rows, table, world, Asked(order.evaluate), home)
    return written(evaluation, home.release(spent.release) / "internal")
