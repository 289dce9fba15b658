"""Neighbours that attain what each query claims: a claim that none attains wastes budget.

They are searched for, so a claim that some pass is found here too. `make audit` searches for longer
and writes the page.
"""

import datetime as dt
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from query_laws import LAWS, UNITS
from query_reach import Effort, Shares, reach

from cloister.privacy.events import Relation, Sensitivity
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.queries.counts import ConjunctionCounts
from cloister.privacy.queries.entropies import Entropies, entropy_sensitivity
from cloister.privacy.queries.raw_columns import RowCount, TextCounts
from cloister.privacy.queries.shared_values import AgreeingPairs
from cloister.privacy.queries.violations import ViolationMatrix
from cloister.tasks.home.process import code_version

LEAST = 0.96
"""Of a claim."""

LOOSE = {AgreeingPairs: 0.83}
"""Of claims that only hashes which collide attain: of replaced rows, the number of pairs changes by
one a row unless three rows of a group have one lot, and two are claimed."""

SHORT, LONG = Effort(starts=12, patience=60), Effort(starts=100, patience=300)

ROUNDING = 1e-9


def shares(kind: type, neighbours: Neighbours, effort: Effort) -> Shares:
    """The share of the query's own claim that neighbours attain."""
    law, query = LAWS[kind], LAWS[kind].make(kind)
    return reach(law, query, query.sensitivity(neighbours), neighbours, effort)


COSTLY = {ViolationMatrix, TextCounts}
"""Of whom two rows are replaced only when slow tests are asked for."""


def cases():
    """Each query with each unit: the most rows of one, replaced if that is cheap, by default."""
    for kind, neighbours in itertools.product(LAWS, UNITS):
        replaced = neighbours.relation is Relation.REPLACE_ONE
        by_default = neighbours.max_rows == 2 and replaced is (kind not in COSTLY)
        marks = [] if by_default else [pytest.mark.slow]
        yield pytest.param(kind, neighbours, marks=marks, id=f"{kind.__name__}-{neighbours}")


@pytest.mark.parametrize(("kind", "neighbours"), cases())
def test_neighbours_attain_what_a_query_claims_and_no_more(kind: type, neighbours: Neighbours):

    for share in shares(kind, neighbours, SHORT).values():
        assert LOOSE.get(kind, LEAST) <= share <= 1 + ROUNDING


@pytest.fixture(scope="module")
def lines():
    """The rows of the page, which is written where AUDIT_PAGE says, once the last one is known."""
    units = [f"{unit.relation}, {unit.max_rows}" for unit in UNITS]
    rows = [f"| query | norm | {' | '.join(units)} |", "|" + "---|" * (2 + len(units))]
    yield rows
    print("\n" + "\n".join(rows))
    if page := os.environ.get("AUDIT_PAGE"):
        made = f"`make audit`, Cloister {code_version()}, {dt.datetime.now(dt.UTC).date()}.\n\n"
        from cloister.benchmarks.pages.markdown import insert

        insert(Path(page), "queries", made + "\n".join(rows))


@pytest.mark.audit
@pytest.mark.parametrize("kind", LAWS, ids=lambda kind: kind.__name__)
def test_a_long_search_attains_all_that_is_claimed(kind: type, lines: list[str]):
    found = [shares(kind, unit, LONG) for unit in UNITS]
    for norm in found[0]:
        figures = " | ".join(f"{each[norm]:.2f}" for each in found)
        lines.append(f"| {kind.__name__} | {norm} | {figures} |")
    least = LOOSE.get(kind, LEAST)
    assert all(least <= share <= 1 + ROUNDING for each in found for share in each.values())


def one_count_a_pair(neighbours: Neighbours) -> Sensitivity:
    """A replaced row is believed to leave one count of each pair as it was."""
    rows = neighbours.max_rows
    return Sensitivity(3 * rows, rows, 3 * rows, 3 * rows**2)


def other_lines_change_by_one(neighbours: Neighbours) -> Sensitivity:
    """Each line of no row of the unit is believed to change by one, whatever rows there are."""
    right = LAWS[ViolationMatrix].make(ViolationMatrix).sensitivity(neighbours)
    rows = min(neighbours.max_rows, 3)
    return Sensitivity(right.cells, right.step, 2 * rows + 3, 4 * rows + 3)


TOO_SMALL: dict[type, tuple[Callable[[Neighbours], object], Neighbours]] = {
    ConjunctionCounts: (one_count_a_pair, Neighbours(Relation.REPLACE_ONE)),
    RowCount: (lambda _: Sensitivity.box(1), Neighbours(Relation.REPLACE_ONE, 2)),
    Entropies: (lambda own: entropy_sensitivity(2, 40, 1.0, own), Neighbours(Relation.REPLACE_ONE)),
    ViolationMatrix: (other_lines_change_by_one, Neighbours(max_rows=2)),
}


@pytest.mark.parametrize("kind", TOO_SMALL, ids=lambda kind: kind.__name__)
def test_a_claim_that_is_too_small_is_passed(kind: type):
    claim, neighbours = TOO_SMALL[kind]
    law, query = LAWS[kind], LAWS[kind].make(kind)
    assert max(reach(law, query, claim(neighbours), neighbours, SHORT).values()) > 1 + ROUNDING
