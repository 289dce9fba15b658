"""The step that evaluates a release against its real rows: internal, kept in the private folder."""

from __future__ import annotations

from cloister.privacy.private import PrivateTable
from cloister.schema.domain import Table
from tasks.home import Home
from tasks.measures import Asked, Measured, compared, written
from tasks.orders import Order, world_of
from tasks.outputs import read_synthetic
from tasks.references import Reference
from tasks.session import Spent
from tasks.steps import step


@step("evaluate", "evaluate {spent.release} ({order.evaluate})")
def measure(order: Order, spent: Spent[Table, PrivateTable], synthetic: Reference, home: Home) -> Measured:
    """Measure the synthetic table against the rows of this release.

    Privacy: the result is not private; it stays in the home and never enters a certificate.
    """
    world = world_of(order)
    table = read_synthetic(synthetic.open(), world.task)
    evaluation = compared(spent.rows, table, world, Asked(order.evaluate), home)
    return written(evaluation, home.release(spent.release) / "internal")
