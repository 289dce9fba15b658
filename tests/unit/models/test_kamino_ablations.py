"""Parts of Kamino switched off: an arbitrary sequence, soft constraints without weights."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from cloister.constraints import dependency
from cloister.models.kamino.paper.recipes import Unweighed, random_sequence
from cloister.models.planning import NETWORKED_LEVELS, schema_sequence
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget
from cloister.privacy.accounting.accountants import epsilon

SIZES = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.integers(1, 2 * NETWORKED_LEVELS),
    min_size=1,
)


@given(SIZES)
def test_an_arbitrary_sequence_holds_every_attribute_once_the_largest_last(sizes):
    sequence = random_sequence(sizes, [])
    assert sorted(sequence) == sorted(sizes)
    large = [sizes[name] > NETWORKED_LEVELS for name in sequence]
    assert large == sorted(large)
    assert random_sequence(dict(reversed(sizes.items())), []) == sequence


def test_an_arbitrary_sequence_ignores_constraints():
    sizes = {name: 3 for name in "abcdefgh"}
    rule = dependency("fd", ["h"], "g")
    assert schema_sequence(sizes, [rule])[:2] == ("h", "g")
    assert random_sequence(sizes, [rule]) == random_sequence(sizes, [])


def test_constraints_without_weights_cost_nothing_and_change_no_row(fitted):
    task = fitted.task
    chosen = make_plan(create("kamino-unweighed"), task, Budget(Fraction(1), Fraction(1, 10**5)))
    (stage,) = [stage for stage in chosen.stages if stage.name == "soft constraints"]
    assert epsilon(stage.event, Fraction(1, 10**5), task.neighbours.relation) == 0
    assert Unweighed().weigh(None, task, Fraction(1), fitted.model) is fitted.model
