"""The design has three attacks on each method, and every two levels of its factors meet."""

from collections import Counter

import pytest

from cloister.audit import design
from cloister.audit.tables import CHOOSING_ROWS, LEAST_ROWS
from cloister.models.registry import METHODS


@pytest.fixture(scope="module")
def attacks():
    """The design where every method has every plan."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(design, "has_plan", lambda attack: True)
        patch.setattr(design, "chooses", lambda attack: False)
        return design.design()


def test_each_method_is_attacked_at_each_budget_and_every_two_levels_meet(attacks):
    assert Counter(attack.method for attack in attacks) == dict.fromkeys(METHODS, 3)
    assert len({(attack.method, attack.epsilon) for attack in attacks}) == len(attacks)
    possible = {
        pair
        for method in METHODS
        for epsilon in design.EPSILONS
        for attack in design._choices(method, epsilon)
        for pair in design.pairs_of(attack)
    }
    assert {pair for attack in attacks for pair in design.pairs_of(attack)} == possible


def test_a_method_without_a_plan_as_of_a_release_is_tried_on_more_rows(monkeypatch):
    monkeypatch.setattr(design, "has_plan", lambda attack: attack.rows == 1_000)
    assert {attack.rows for attack in design.attacks_of("independent")} == {1_000}
    monkeypatch.setattr(design, "has_plan", lambda attack: attack.epsilon == "4")
    assert [attack.epsilon for attack in design.attacks_of("independent")] == ["4"]
    monkeypatch.undo()
    independent, *_ = design.attacks_of("independent")
    assert design.has_plan(independent)
    assert not design.has_plan(design.replace(independent, method="deniability"))


@pytest.mark.parametrize("method", ["mixture", "relational"])
def test_the_largest_budget_attacks_the_selections_of_a_method(method):
    *smaller, largest = design.attacks_of(method)
    assert (largest.epsilon, largest.rows) == ("4", CHOOSING_ROWS)
    assert design.chooses(largest)
    assert not design.chooses(design.replace(largest, rows=LEAST_ROWS))
    assert {attack.rows for attack in smaller} == {LEAST_ROWS}
