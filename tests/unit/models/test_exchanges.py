"""Rows that break a rule inside their bins get other values there: bins and their values stay."""

from pathlib import Path

import numpy as np
import pytest

from cloister.constraints import parse_denial
from cloister.constraints.counting import count_violations
from cloister.models.core.bins import bin_cells
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.whole_tables import ProposingSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells

NUMBER = Integer(type="integer", min=0, max=99, bins=2)
DOMAIN = Domain.of(
    {
        "kind": Categorical(type="categorical", values=["policy", "claim"]),
        "paid": NUMBER,
        "claimed": NUMBER,
    },
    Path(),
)
ALL = "t.paid > t.claimed"
CLAIMS = "t.kind = 'claim' and t.paid > t.claimed"
ROWS = 6_000


class Even:
    """Attributes that do not depend on each other, with even bins."""

    def conditional(self, _place, _context):
        return np.array([[0.5, 0.5]])


class Proposing(ProposingSampler):
    """Proposes whole chunks of rows as they are drawn one by one."""

    chunk_rows = ROWS

    def follower(self, rows, rng):
        return AncestralSampler(self.plain.chain)


def drawn(rule, whole):
    bins = {}
    for column in DOMAIN:
        cells = declared_cells(column)
        bins[column.name] = bin_cells(cells, np.full(cells.size, 0.5), 0.0001, keep=True)
    rules = (parse_denial(rule, "rule"),)
    plain = ConstraintSampler(DOMAIN, DOMAIN.names, bins, Even(), row_rules=rules)
    sampler = Proposing(plain) if whole else plain
    rows = Table.concatenate(list(sampler.chunks(ROWS, SamplingSource(1))))
    assert rows.rows == ROWS
    assert count_violations(rules[0], rows) == 0
    return rows.codes


@pytest.mark.parametrize("whole", [False, True])
def test_bins_come_together_as_often_as_the_model_has_them(whole):
    codes = drawn(ALL, whole)
    low_paid, low_claimed = codes["paid"] < 50, codes["claimed"] < 50
    # five deviations of a share of a third among these rows
    allowed = 5 * np.sqrt(2 / 9 / ROWS)
    assert abs((low_paid & low_claimed).mean() - 1 / 3) < allowed
    assert abs((low_paid & ~low_claimed).mean() - 1 / 3) < allowed


@pytest.mark.parametrize("rule", [ALL, CLAIMS])
def test_both_numbers_keep_the_values_of_their_bins(rule):
    codes = drawn(rule, whole=False)
    paid, claimed = codes["paid"], codes["claimed"]
    # six deviations of a mean of 2,000 even numbers of 50, and what is drawn anew
    allowed = 6 * 14.4 / np.sqrt(2_000) + 0.5
    for values in (paid[paid < 50], claimed[claimed >= 50] - 50):
        assert abs(values.mean() - 24.5) < allowed
