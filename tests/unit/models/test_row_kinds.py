"""Rules on a row leave the shares of rows that they ask nothing of as the model has them."""

from pathlib import Path

import numpy as np
import pytest

from cloister.constraints import parse_denial
from cloister.constraints.counting import count_violations
from cloister.models.core.bins import bin_cells
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.row_by_row import RowKinds
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.whole_tables import ProposingSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells

MONTH = Integer(type="integer", min=0, max=99, bins=1, nullable=True)
DOMAIN = Domain.of(
    {
        "id": TextKey(type="text", pattern="R{1..1000000}"),
        "kind": Categorical(type="categorical", values=["policy", "claim"]),
        "start": MONTH.model_copy(update={"nullable": False}),
        "end": MONTH,
    },
    Path(),
)
ENDS = parse_denial("t.start > t.end", "ends")
CLAIMS = parse_denial("t.kind = 'claim' and t.start > t.end", "claims")
ROWS = 4_000
MISSING = 0.8


class Even:
    """Attributes that do not depend on each other."""

    def __init__(self, bins):
        self._shares = [bins[name].mass[None] for name in DOMAIN.modelled]

    def conditional(self, position, _):
        return self._shares[position]


class Proposing(ProposingSampler):
    """Proposes whole chunks of rows as they are drawn one by one."""

    chunk_rows = 1_000

    def follower(self, rows, rng):
        return AncestralSampler(self.plain.chain)


def sampler_of(*rules):
    shares = {
        "kind": np.array([0.7, 0.3]),
        "start": np.array([1.0]),
        "end": np.array([1 - MISSING, MISSING]),
    }
    cells = {name: declared_cells(DOMAIN[name]) for name in shares}
    bins = {
        name: bin_cells(cells[name], probabilities, 0.0001, keep=True)
        for name, probabilities in shares.items()
    }
    return ConstraintSampler(DOMAIN, DOMAIN.modelled, bins, Even(bins), row_rules=rules)


def drawn(*rules, sampler=None):
    sampler = sampler or sampler_of(*rules)
    rows = Table.concatenate(list(sampler.chunks(ROWS, SamplingSource(1))))
    assert rows.rows == ROWS
    assert all(count_violations(rule, rows) == 0 for rule in rules)
    return rows


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("rules", [(ENDS,), (CLAIMS,), (ENDS, CLAIMS)])
def test_rejected_rows_are_replaced_by_rows_of_the_same_kind(rules, whole):
    rows = drawn(*rules, sampler=Proposing(sampler_of(*rules)) if whole else None)
    ended = rows.codes["end"] != DOMAIN["end"].null_code
    claims = rows.codes["kind"] == 1
    # five deviations of a share of 0.3 among these rows
    allowed = 5 * np.sqrt(0.3 * 0.7 / ROWS)
    assert abs(ended.mean() - (1 - MISSING)) < allowed
    assert abs(claims.mean() - 0.3) < allowed
    assert abs((ended & claims).mean() - 0.3 * (1 - MISSING)) < allowed


@pytest.mark.parametrize("sampler", [None, Proposing(sampler_of(ENDS))])
def test_rows_drawn_late_for_their_kind_do_not_stand_last(sampler):
    ended = drawn(ENDS, sampler=sampler).codes["end"] != DOMAIN["end"].null_code
    assert abs(ended[: ROWS // 2].mean() - ended[ROWS // 2 :].mean()) < 0.1


def test_a_kind_of_which_hardly_a_row_is_lawful_gives_its_places_to_others():
    half = parse_denial("t.start < 50 and t.start <= t.end and t.end <= 99", "half")
    rows = drawn(half, parse_denial("t.start >= t.end and t.start < 50", "other"))
    early = rows.codes["start"] < 50
    assert not (early & (rows.codes["end"] != DOMAIN["end"].null_code)).any()


def test_places_of_rows_that_others_leave_out_are_filled_by_any_kind():
    codes = {"kind": np.zeros(6), "start": np.zeros(6), "end": np.array([100, 100, 100, 1, 1, 1])}
    table = Table(DOMAIN, {"id": np.zeros(6), **codes})
    kinds, lawful = RowKinds([ENDS], 4), np.array([True, True, True, True, False, False])
    assert kinds.choose(table, lawful, 4).tolist() == [0, 1, 3]
    assert kinds.waiting
    assert kinds.choose(table, lawful, 3).tolist() == [0, 1, 3]
