"""Laws of disjoint random parts of the rows: a row changes one, and the door divides as planned."""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from private_table import PrivateTable
from tiny_tables import domain_of, random_rows, table_of

from cloister.errors import UnplannedQuery, UnsupportedEvent
from cloister.models.task import Stage
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.accounting.composition import event_of_stages
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import (
    Bounded,
    Composed,
    LaplaceCounts,
    OnGrid,
    Parallel,
    Selection,
    Sensitivity,
    compose,
)
from cloister.privacy.mechanisms.noise import DiscreteGaussian, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.transformations import Split
from cloister.schema.partition import declared_cells

HALVES = Split((Fraction(1, 5), Fraction(3, 10), Fraction(1, 2)))
KEY = np.array([12345, -678901234567], dtype=np.int64)
COUNTS = PartitionCounts((declared_cells(domain_of(3, 2, 4)["c2"]),))


def parts_of(rows, split, key=KEY):
    """How often each row is in each part."""
    numbers = split.parts(table_of(rows), key)
    return Counter((*map(int, row), int(part)) for row, part in zip(rows, numbers, strict=True))


class SplitByPlace(Split):
    """A broken split: the part of a row depends on its place, which rows before it change."""

    def parts(self, table, key):
        draws = np.random.default_rng(abs(int(key[0]))).random(table.rows)
        return np.searchsorted([0.2, 0.5], draws)


def changes(split, seed):
    """Rows of parts that change when a row is added at a random place."""
    rng = np.random.default_rng(seed)
    rows, added = random_rows(rng, int(rng.integers(0, 60))), random_rows(rng, 1)
    more = np.insert(rows, int(rng.integers(0, len(rows) + 1)), added[0], axis=0)
    before, after = parts_of(rows, split), parts_of(more, split)
    return sum(((after - before) + (before - after)).values())


def test_a_row_more_is_a_row_more_in_one_part_and_changes_no_other():
    assert {changes(HALVES, seed) for seed in range(300)} == {1}


def test_a_split_by_place_is_caught():
    assert max(changes(SplitByPlace(HALVES.shares), seed) for seed in range(300)) > 1


def test_parts_have_their_shares_even_of_equal_rows_and_other_keys_give_other_parts():
    rows = np.zeros((20_000, 3), dtype=np.int64)
    sizes = np.bincount(HALVES.parts(table_of(rows), KEY), minlength=3) / len(rows)
    # 6 standard deviations of a share of 20,000 rows
    assert np.abs(sizes - [0.2, 0.3, 0.5]).max() < 6 * 0.5 / math.sqrt(20_000)
    other = HALVES.parts(table_of(rows), KEY + 1)
    assert (HALVES.parts(table_of(rows), KEY) != other).mean() > 0.5


def door_of(folder, planned, noise, rows=400):
    table = table_of(random_rows(np.random.default_rng(9), rows))
    journal = Journal.open(folder, {"run": "split"})
    return PrivateTable(table, Neighbours(), planned, journal, noise), journal


def test_the_door_divides_rows_as_planned_and_as_before_when_a_run_is_resumed(tmp_path):
    mechanism = DiscreteGaussian(Fraction(1, 1000))
    event = mechanism.event(Neighbours().partition)
    planned = Composed(((Parallel((compose(event), compose(event, event), compose())), 1),))

    def counted(noise, answers):
        door, journal = door_of(tmp_path, planned, noise)
        with journal:
            parts = door.divide(HALVES, "parts")
            asked = [(0, "a"), (1, "b"), (1, "c")][:answers]
            found = [parts[part].answer(COUNTS, mechanism, label) for part, label in asked]
            if answers == 3:
                assert not door.plan_budget.remaining
                with pytest.raises(UnplannedQuery):
                    parts[2].answer(COUNTS, mechanism, "d")
                with pytest.raises(UnplannedQuery):
                    door.divide(HALVES, "again")
            return np.array(found)

    first = counted(NoiseSource.insecure(1), 2)
    again = counted(NoiseSource.insecure(2), 3)
    assert (again[:2] == first).all()
    # the noise is far below a row: b and c count the same part
    assert (again[1] == again[2]).all() and abs(again[1].sum() - 120) < 6 * math.sqrt(84)


def test_what_is_planned_for_parts_is_not_for_the_whole_table(tmp_path):
    mechanism = DiscreteGaussian(Fraction(10))
    event = mechanism.event(Neighbours().partition)
    door, journal = door_of(tmp_path, Parallel((event, event, event)), NoiseSource.insecure(1))
    with journal, pytest.raises(UnplannedQuery):
        door.answer(COUNTS, mechanism, "whole")


def drawn_stages(data, most):
    """Stages of one to three disjoint parts, each of a known cost, for units of ``most`` rows."""

    def event(cost):
        counts = LaplaceCounts(cost, Sensitivity.partition("add_remove", most))
        return st.sampled_from([counts, OnGrid(counts, most), Selection(cost), Bounded(cost)])

    costs = st.integers(1, 4).map(lambda tenths: Fraction(tenths, 10))
    stage = st.tuples(
        st.sampled_from("abc"), costs.flatmap(lambda c: st.tuples(st.just(c), event(c)))
    )
    return data.draw(st.lists(stage, min_size=1, max_size=5))


def charges_a_unit_in_several_parts(data, build):
    """A unit of m rows may lie in the m dearest parts, and is charged for them, or refused."""
    most = data.draw(st.integers(1, 3))
    stages = drawn_stages(data, most)
    spent = Counter()
    for part, (cost, _) in stages:
        spent[part] += cost
    worst = sum(sorted(spent.values(), reverse=True)[:most])
    try:
        planned = build([Stage("s", event, "", part) for part, (_, event) in stages])
    except UnsupportedEvent:
        return not any(isinstance(event, LaplaceCounts | OnGrid) for _, (_, event) in stages)
    return epsilon(planned, 0, "add_remove") >= float(worst) - 1e-12


def without_rows(stages):
    """Broken: parts that nowhere say how many rows a unit has cost the dearest of them."""
    names = dict.fromkeys(stage.part for stage in stages)
    return Parallel(tuple(compose(*(s.event for s in stages if s.part == name)) for name in names))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_stages_on_parts_charge_a_unit_for_all_the_parts_that_its_rows_may_lie_in(data):
    assert charges_a_unit_in_several_parts(data, event_of_stages)


def test_parts_without_the_rows_of_a_unit_break_the_law():
    @settings(max_examples=300, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(data=st.data())
    def law(data):
        assert charges_a_unit_in_several_parts(data, without_rows)

    with pytest.raises(AssertionError):
        law()


def test_selections_alone_on_two_parts_are_refused():
    stages = [Stage(part, Selection(Fraction(1)), "", part) for part in ("one", "other")]
    with pytest.raises(UnsupportedEvent, match="how many rows a unit has"):
        event_of_stages(stages)
    assert event_of_stages([replace(stage, part=None) for stage in stages]).parts
