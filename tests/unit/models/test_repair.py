"""Rows that break a rule inside their bins get other values there: bins and their values stay."""

from dataclasses import replace

import numpy as np
import pytest
from declared_table import domain_of

from cloister.constraints import parse_denial
from cloister.constraints.counting import count_violations
from cloister.models.core.bins import bin_cells
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.whole_tables import ProposingSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.partition import declared_cells

NUMBER = Integer(type="integer", min=0, max=99, bins=2)
MONTH = NUMBER.model_copy(update={"bins": 1})
DOMAIN = domain_of(
    id=TextKey(type="text", pattern="R{1..1000000}"),
    kind=Categorical(type="categorical", values=["policy", "claim"]),
    paid=NUMBER,
    claimed=NUMBER,
    start=MONTH,
    end=MONTH.model_copy(update={"nullable": True}),
    file=Integer(type="integer", min=0, max=99_999, bins=1),
)
SHARES = {"kind": [0.7, 0.3], "end": [0.2, 0.8]}
"""Of levels that are not even: claims are rare, and most rows have no end."""

PAID = parse_denial("t.paid > t.claimed", "paid")
ENDS = parse_denial("t.start > t.end", "ends")
CLAIMS = parse_denial("t.kind = 'claim' and t.start > t.end", "claims")
FILES = parse_denial("t1.file = t2.file", "files")
ROWS = 6_000


class Independent:
    """Attributes that do not depend on each other."""

    def conditional(self, place, _context):
        return BINS[DOMAIN.modelled[place]].mass[None]


def bins_of(name):
    cells = declared_cells(DOMAIN[name])
    shares = np.array(SHARES.get(name, np.full(cells.size, 1 / cells.size)))
    return bin_cells(cells, shares, 0.0001, keep=True)


BINS = {name: bins_of(name) for name in DOMAIN.modelled}


class Proposing(ProposingSampler):
    """Proposes whole chunks of rows as they are drawn one by one."""

    chunk_rows = 1_000

    def follower(self, rows, rng):
        return AncestralSampler(self.plain.chain)


def drawn(*rules, whole=False, keyed=False):
    plain = ConstraintSampler(DOMAIN, DOMAIN.modelled, BINS, Independent(), row_rules=rules)
    if keyed:
        plain = replace(plain, pair_rules=(FILES,))
    rows = (Proposing(plain) if whole else plain).sample(ROWS, SamplingSource(1))
    assert rows.rows == ROWS
    assert not any(count_violations(rule, rows) for rule in (*rules, *plain.pair_rules))
    return rows.codes


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_bins_come_together_as_often_as_the_model_has_them(whole, keyed):
    codes = drawn(PAID, whole=whole, keyed=keyed)
    low_paid, low_claimed = codes["paid"] < 50, codes["claimed"] < 50
    # five deviations of a share of a third among these rows
    allowed = 5 * np.sqrt(2 / 9 / ROWS)
    assert abs((low_paid & low_claimed).mean() - 1 / 3) < allowed
    assert abs((low_paid & ~low_claimed).mean() - 1 / 3) < allowed


def test_both_numbers_keep_the_values_of_their_bins():
    codes = drawn(PAID)
    paid, claimed = codes["paid"], codes["claimed"]
    # six deviations of a mean of 2,000 even numbers of 50, and what is drawn anew
    allowed = 6 * 14.4 / np.sqrt(2_000) + 0.5
    for values in (paid[paid < 50], claimed[claimed >= 50] - 50):
        assert abs(values.mean() - 24.5) < allowed


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("rules", [(ENDS,), (CLAIMS,), (ENDS, CLAIMS)])
def test_rows_lack_a_value_as_often_as_the_model_has_it(rules, whole, keyed):
    codes = drawn(*rules, whole=whole, keyed=keyed)
    ended, claims = codes["end"] != DOMAIN["end"].null_code, codes["kind"] == 1
    # five deviations of a share of 0.3 among these rows
    allowed = 5 * np.sqrt(0.3 * 0.7 / ROWS)
    assert abs(ended.mean() - SHARES["end"][0]) < allowed
    assert abs(claims.mean() - SHARES["kind"][1]) < allowed
    assert abs((ended & claims).mean() - SHARES["kind"][1] * SHARES["end"][0]) < allowed


def test_rows_that_no_value_of_their_bins_repairs_are_left_out():
    half = parse_denial("t.start < 50 and t.start <= t.end and t.end <= 99", "half")
    codes = drawn(half, parse_denial("t.start >= t.end and t.start < 50", "other"))
    early = codes["start"] < 50
    assert not (early & (codes["end"] != DOMAIN["end"].null_code)).any()
