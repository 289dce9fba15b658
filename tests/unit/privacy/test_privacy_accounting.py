"""How accountants are used: the least answer, refusals, disjoint parts, and changes of totals."""

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.accountants import epsilon, spend
from cloister.privacy.events import (
    Bounded,
    Composed,
    Event,
    GaussianCounts,
    LaplaceCounts,
    Parallel,
    SampledGaussian,
    Selection,
    Sensitivity,
    Thresholded,
    compose,
    repeat,
)

ADD = Sensitivity.partition("add_remove")
COUNTS = GaussianCounts(Fraction(4), ADD)
TRAINING = SampledGaussian(Fraction(1, 100), Fraction(1), 200)
LAPLACE = LaplaceCounts(Fraction(1, 10), ADD)


@dataclass(frozen=True)
class Surprise(Event):
    """An event no accountant knows."""


def test_an_unknown_event_or_relation_and_a_delta_out_of_range_are_refused() -> None:
    hidden = (Surprise(), compose(COUNTS, Surprise()), Parallel((COUNTS, repeat(Surprise(), 3))))
    for event in hidden:
        with pytest.raises(UnsupportedEvent, match="Surprise"):
            epsilon(event, 1e-6, "add_remove")
    with pytest.raises(ValueError, match="swap"):
        epsilon(COUNTS, 1e-6, "swap")
    for delta in (-1e-9, 1, 2.0):
        with pytest.raises(UnsupportedEvent, match="Delta lies between"):
            epsilon(COUNTS, delta, "add_remove")


def test_pure_sums_are_exact_and_gaussian_noise_has_no_epsilon_at_delta_zero() -> None:
    assert epsilon(Composed(()), 0, "add_remove") == 0.0
    assert spend(repeat(LAPLACE, 10), 0, "add_remove").epsilon == 1.0
    assert spend(LAPLACE, 0, "add_remove").accountant == "sum of epsilons"
    pure = compose(LAPLACE, Selection(Fraction(1, 5)), Bounded(Fraction(1, 2)))
    assert epsilon(pure, 0, "replace_one") == 0.8
    with pytest.raises(UnsupportedEvent, match="No accountant"):
        epsilon(compose(COUNTS, LAPLACE), 0, "add_remove")


def test_the_least_answer_is_taken() -> None:
    assert spend(repeat(LAPLACE, 20), 1e-6, "add_remove").accountant == "privacy loss distribution"
    assert (
        spend(repeat(Selection(Fraction(1, 10)), 200), 1e-6, "add_remove").accountant
        == "Rényi divergences"
    )
    assert spend(LAPLACE, 1e-12, "add_remove").accountant == "sum of epsilons"
    assert spend(COUNTS, 1e-12, "add_remove").accountant == "Rényi divergences"


def test_rows_per_person_are_accounted_for() -> None:
    several = Sensitivity.partition("add_remove", 5)
    assert epsilon(GaussianCounts(Fraction(4), several), 1e-6, "add_remove") >= epsilon(
        COUNTS, 1e-6, "add_remove"
    )
    many = SampledGaussian(Fraction(1, 100), Fraction(3), 200, rows=3)
    one = SampledGaussian(Fraction(1, 100), Fraction(3), 200)
    assert epsilon(many, 1e-6, "add_remove") > 2 * epsilon(one, 1e-6, "add_remove")
    assert epsilon(compose(many, GaussianCounts(Fraction(4), several)), 1e-6, "add_remove") > 1
    with pytest.raises(UnsupportedEvent, match="several rows"):
        epsilon(many, 1e-6, "replace_one")


def test_disjoint_parts_cost_the_worst_of_them_or_their_sum_where_a_row_is_replaced() -> None:
    cheap, dear = LAPLACE, LaplaceCounts(Fraction(1), ADD)
    assert epsilon(Parallel((cheap, dear, cheap)), 0, "add_remove") == 1.0
    assert epsilon(compose(Parallel((cheap, dear)), cheap), 0, "add_remove") == 1.1
    assert epsilon(repeat(Parallel((cheap, dear)), 2), 0, "add_remove") == 2.0
    assert epsilon(Parallel((LAPLACE, LAPLACE)), 0, "replace_one") == 0.2


@pytest.mark.parametrize(
    "event",
    [
        Parallel((LAPLACE, LAPLACE, LAPLACE), rows=2),
        Parallel(
            tuple(
                LaplaceCounts(Fraction(1, 10), Sensitivity.partition("add_remove", 3))
                for _ in range(3)
            )
        ),
        Parallel((Parallel((LAPLACE, LAPLACE, LAPLACE), rows=2), Bounded(Fraction(0)))),
    ],
)
def test_disjoint_parts_cost_their_sum_where_a_unit_owns_several_rows(event: Event) -> None:
    assert 0.3 <= epsilon(event, 0, "add_remove") <= 0.3 + 1e-15


def test_disjoint_parts_of_training_on_several_rows_are_composed() -> None:
    several = SampledGaussian(Fraction(1, 100), Fraction(3), 100, rows=3)
    both = epsilon(Parallel((several, several)), 1e-6, "add_remove")
    assert (
        both
        == epsilon(repeat(several, 2), 1e-6, "add_remove")
        > epsilon(several, 1e-6, "add_remove")
    )


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("short", [Fraction(1, 2**21), Fraction(1, 2**54), Fraction(1, 10**30)])
def test_a_rate_next_to_one_is_accounted_for_as_one(relation: str, short: Fraction) -> None:
    for noise, rows in ((Fraction(3), 1), (Fraction(9), 3)):
        near, whole = (
            SampledGaussian(rate, noise, 5, rows=rows) for rate in (1 - short, Fraction(1))
        )
        assert epsilon(near, 1e-6, relation) == epsilon(whole, 1e-6, relation)


def test_the_worst_path_may_mix_parts() -> None:
    leaky, noisy = Bounded(Fraction(0), Fraction(1, 10**6)), LAPLACE
    event = repeat(Parallel((leaky, noisy)), 2)
    for relation in ("add_remove", "replace_one"):
        assert epsilon(event, Fraction(201, 10**8), relation) < 10
        with pytest.raises(UnsupportedEvent, match="allow a larger delta"):
            epsilon(event, Fraction(199, 10**8), relation)
    assert epsilon(event, 1e-5, "add_remove") == pytest.approx(0.2, rel=1e-3)


def test_too_many_paths_are_refused() -> None:
    parts = [
        Parallel((LaplaceCounts(Fraction(1, n), ADD), LaplaceCounts(Fraction(2, n), ADD)))
        for n in range(9, 29, 2)
    ]
    with pytest.raises(UnsupportedEvent, match="paths"):
        epsilon(compose(*parts), 0, "add_remove")


def test_more_than_delta_allows_is_refused_and_a_float_delta_is_the_decimal_it_is_written_as():
    """In binary 0.3 is less than 3/10, which the event may leak."""
    event = Thresholded(LAPLACE, Fraction(1, 10**6))
    assert epsilon(event, 1e-6, "add_remove") == 0.1
    with pytest.raises(UnsupportedEvent, match="larger delta"):
        epsilon(repeat(event, 2), 1e-6, "add_remove")
    event = Bounded(Fraction(1), Fraction(3, 10))
    assert epsilon(event, 0.3, "add_remove") == epsilon(event, Fraction(3, 10), "add_remove") == 1


def test_splitting_steps_changes_nothing() -> None:
    halves = repeat(SampledGaussian(Fraction(1, 100), Fraction(1), 100), 2)
    assert epsilon(halves, 1e-6, "add_remove") == epsilon(TRAINING, 1e-6, "add_remove")


simple = (
    st.builds(GaussianCounts, st.fractions(2, 50, max_denominator=10), st.just(ADD))
    | st.builds(
        LaplaceCounts,
        st.fractions(Fraction(1, 100), Fraction(1, 2), max_denominator=100),
        st.just(ADD),
    )
    | st.builds(Selection, st.fractions(Fraction(1, 100), Fraction(1, 2), max_denominator=100))
    | st.builds(
        SampledGaussian,
        st.just(Fraction(1, 100)),
        st.fractions(1, 4, max_denominator=4),
        st.integers(1, 300),
    )
)


@settings(max_examples=15)
@given(
    st.lists(simple, min_size=1, max_size=4), simple, st.sampled_from(["add_remove", "replace_one"])
)
def test_more_events_never_cost_less(events: list[Event], another: Event, relation: str) -> None:
    before = epsilon(compose(*events), 1e-6, relation)
    assert epsilon(compose(*events, another), 1e-6, relation) >= before * (1 - 1e-3)
    together = epsilon(compose(*events, another), 2e-6, relation)
    assert together <= (before + epsilon(another, 1e-6, relation)) * (1 + 1e-3)


@settings(max_examples=20)
@given(st.integers(1, 200), st.integers(2, 9))
def test_quadrupling_tables_and_doubling_noise_changes_little(times: int, noise: int) -> None:
    before = epsilon(repeat(GaussianCounts(Fraction(10 * noise), ADD), times), 1e-6, "add_remove")
    after = epsilon(
        repeat(GaussianCounts(Fraction(20 * noise), ADD), 4 * times), 1e-6, "add_remove"
    )
    assert after == pytest.approx(before, rel=0.01)


@pytest.mark.parametrize("noise", [Fraction(1, 3), Fraction(1, 30), Fraction(1, 3_000)])
@pytest.mark.parametrize("times", [1, 2, 50])
def test_hardly_any_noise_has_an_epsilon_however_large(noise: Fraction, times: int) -> None:
    counts = repeat(GaussianCounts(noise, ADD), times)
    loss = epsilon(compose(counts, LaplaceCounts(1 / noise, ADD)), 1e-6, "add_remove")
    assert loss >= times / (2 * float(noise) ** 2)
