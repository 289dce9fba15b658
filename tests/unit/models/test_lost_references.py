"""References that rows lose to rules, circles or bounds are told apart from chance."""

from pathlib import Path

import numpy as np

from cloister.models.core.bins import bin_cells
from cloister.models.quality import find_lost_references
from cloister.schema.attributes import Boolean, TextKey
from cloister.schema.domain import Domain, Table, column_of
from cloister.schema.partition import declared_cells
from cloister.schema.relations import Database, ForeignKey, Schema

KEY = TextKey(type="text", pattern="{1..9999}")
STAFF = Domain.of({"id": KEY, "boss": KEY.model_copy(update={"nullable": True})}, Path())
SCHEMA = Schema({"staff": STAFF}, (ForeignKey("staff", "boss", "staff", "id", 9, optional=True),))


def staff(named: int) -> Database:
    """A thousand rows, of which so many name the first one."""
    missing = STAFF["boss"].null_code
    boss = np.where(np.arange(1_000) < named, 0, missing)
    return Database(SCHEMA, {"staff": Table(STAFF, {"id": np.arange(1_000), "boss": boss})})


def released(share: float):
    """A histogram by which such a share of rows refers."""
    cells = declared_cells(column_of("boss", Boolean(type="boolean"), Path()))
    refers = int(cells.index(np.array([1]))[0])
    shares = np.full(cells.size, 1 - share)
    shares[refers] = share
    return {"staff": {"boss": bin_cells(cells, shares, 0.0, keep=True)}}


def test_rows_that_lost_their_reference_are_counted_beside_the_released_number():
    """Chance is no loss, and a table without histograms has no expectation."""
    (lost,) = find_lost_references(released(0.8), staff(600))
    assert (lost.named, lost.expected, lost.rows) == (600, 800, 1_000)
    assert "'boss' of table 'staff' names a row in 600 of 1,000 rows" in str(lost)
    assert find_lost_references(released(0.8), staff(770)) == ()
    assert find_lost_references(released(0.8), staff(850)) == ()
    assert find_lost_references({}, staff(10)) == ()
