"""The mixture of products against brute force: marginals, gradients, factors, rounds, draws."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch

from cloister.models.core.bins import bin_cells, coarse
from cloister.models.core.costs import PAIR_CELLS
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.feasible_sets.branches import Branches
from cloister.models.feasible_sets.feasible_set import FeasibleSet
from cloister.models.mixture import measurements, model
from cloister.models.mixture.factors import (
    arrange_factors,
    join_feasible_sets,
    separate_factors,
    transfer,
)
from cloister.models.mixture.fit import run_rounds
from cloister.models.mixture.model import chain_of
from cloister.models.mixture.optimizer import (
    DependencePenalty,
    Fit,
    TableTarget,
    Targets,
    add_dependence_penalty,
    gradient,
)
from cloister.models.mixture.plan import MixtureParameters
from cloister.models.mixture.products import Factor, Mixture
from cloister.privacy.mechanisms.noise import DiscreteGaussian, Neighbours
from cloister.privacy.mechanisms.selection import Exponential
from cloister.privacy.queries.distances import CandidateScores
from cloister.schema.attributes import Categorical
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

SIZES = {"a": 3, "b": 12, "c": 2}
COMPONENTS = 5


def bins_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    columns = {
        name: Categorical(type="categorical", values=[f"v{at:03}" for at in range(n)])
        for name, n in sizes.items()
    }
    domain = Domain.of(columns, Path())
    return {
        name: bin_cells(declared_cells(domain[name]), rng.dirichlet(np.ones(size)), 0.0, keep=True)
        for name, size in sizes.items()
    }


def mixture_on(layout, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shares = [
        torch.softmax(torch.randn(part.stop - part.start, COMPONENTS, generator=generator), 0)
        for part in layout.ranges
    ]
    weights = torch.softmax(torch.randn(COMPONENTS, generator=generator), 0)
    return Mixture(layout, weights, torch.cat(shares))


def joint(mixture):
    """The joint distribution over all attributes, in the order of the layout's sizes."""
    names = list(mixture.layout.sizes)
    table = np.zeros(tuple(mixture.layout.sizes.values()))
    numbers = range(len(mixture.layout.factors))
    for picked in product(*(list(cells_of(mixture, number)) for number in numbers)):
        share, cell = mixture.weights.double(), dict.fromkeys(names, 0)
        for shares, levels in picked:
            share, cell = share * shares, cell | levels
        table[tuple(int(cell[name]) for name in names)] += float(share.sum())
    return table


def cells_of(mixture, number):
    """The joint levels of a factor, with their share in each component, by what a factor means."""
    factor, shares = mixture.layout.factors[number], mixture.factor(number).double()
    if isinstance(factor, Factor):
        for level, line in zip(factor.levels, shares, strict=True):
            yield line, dict(zip(factor.attributes, level, strict=True))
        return
    ranges = iter(shares.split(np.diff(factor.edges).tolist()))
    of_branch, kinds = next(ranges), []
    for sets, variant in factor.branches.variants:
        of_sets = [next(ranges) for _ in sets]
        kinds.append([(np.flatnonzero(sets[v]), of_sets[v]) for v in variant])
    for branch, share in enumerate(of_branch):
        levels = [kind[branch] for kind in kinds]
        for joint_level in product(*(range(len(allowed)) for allowed, _ in levels)):
            line, cell = share, {}
            for name, (allowed, some), at in zip(
                factor.attributes, levels, joint_level, strict=True
            ):
                line, cell = line * some[at], cell | {name: allowed[at]}
            yield line, cell


BRANCHES = Branches(
    ("a", "c"),
    (
        np.array([[1, 0, 0], [0, 1, 1], [0, 1, 0]], dtype=bool),
        np.array([[1, 0], [0, 1], [1, 0]], dtype=bool),
    ),
)
LAYOUTS = {
    "separate": separate_factors(SIZES),
    "joined": join_feasible_sets(SIZES, [Factor(("a", "c"), np.array([[0, 0], [1, 1], [2, 1]]))]),
    "branches": separate_factors(SIZES, [BRANCHES]),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("names", [("a",), ("b", "a"), ("c", "b"), ("c", "a"), ("c", "b", "a")])
def test_marginals_are_those_of_the_joint_distribution(layout, names):
    mixture, bins = mixture_on(layout), bins_of(SIZES)
    coarsenings = [coarse(bins[name], 4) for name in names]
    order = list(SIZES)
    table = joint(mixture).transpose(
        [order.index(name) for name in names] + [i for i, n in enumerate(order) if n not in names]
    )
    table = table.reshape(*(SIZES[name] for name in names), -1).sum(-1)
    for axis, coarsening in enumerate(coarsenings):
        parts = np.zeros((*table.shape[:axis], coarsening.size, *table.shape[axis + 1 :]))
        np.add.at(parts, (*[slice(None)] * axis, coarsening.joined), table)
        table = parts
    np.testing.assert_allclose(mixture.marginal(coarsenings), table, atol=1e-6)


@pytest.mark.parametrize(
    "layout", [LAYOUTS["separate"], LAYOUTS["branches"]], ids=["separate", "branches"]
)
@pytest.mark.parametrize("sequence", ["abc", "cba", "bca"])
def test_a_chain_has_the_distribution_of_its_mixture(layout, sequence):
    mixture, bins = mixture_on(layout), bins_of(SIZES)
    chain, order = chain_of(mixture, tuple(sequence), bins), list(SIZES)
    wanted = joint(mixture).transpose([order.index(name) for name in sequence])
    shares, context = np.ones(1), np.zeros((1, 0), dtype=np.int64)
    for position, name in enumerate(sequence):
        shares = (shares[:, None] * chain.conditional(position, context)).ravel()
        levels = np.tile(np.arange(SIZES[name]), len(context))
        context = np.column_stack([np.repeat(context, SIZES[name], axis=0), levels])
        np.testing.assert_allclose(chain.joint_shares(range(position + 1)), shares, atol=1e-5)
    np.testing.assert_allclose(shares, wanted.ravel(), atol=1e-5)


def test_joint_shares_of_a_chain_are_none_if_they_are_too_many(monkeypatch):
    chain = chain_of(mixture_on(LAYOUTS["separate"]), tuple(SIZES), bins_of(SIZES))
    monkeypatch.setattr(model, "_MOST_NUMBERS", SIZES["a"] * COMPONENTS)
    assert chain.joint_shares([0, 1]) is not None
    assert chain.joint_shares([1, 0]) is None


@pytest.mark.parametrize("branched", [False, True])
def test_a_factor_that_leaves_a_level_out_is_not_taken_for_its_attribute(branched):
    """Also where the branch and the levels that are left are as many as the attribute has."""
    sizes, bins = {"a": 3}, bins_of({"a": 3})["a"]
    only = Branches(("a",), (np.array([[True, False, True]]),))
    listed = join_feasible_sets(sizes, [Factor(("a",), np.array([[0], [2]]))])
    mixture = mixture_on(separate_factors(sizes, [only]) if branched else listed)
    np.testing.assert_allclose(mixture.marginal([bins]), joint(mixture), atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_parts_that_hold_one_bin_each_in_another_order_are_not_taken_for_the_bins(layout):
    mixture, bins = mixture_on(layout), bins_of(SIZES)["a"]
    turned = mixture.marginal([bins.coarsen(np.arange(bins.size)[::-1])])
    np.testing.assert_allclose(turned, mixture.marginal([bins])[::-1], rtol=1e-6)


def test_two_attributes_of_the_same_branches_are_told_apart():
    """Their views have parts of the same numbers, of other levels."""
    sizes = {"a": 2, "b": 2}
    alike = np.array([[True, False], [False, True]])
    layout = separate_factors(sizes, [Branches(("a", "b"), (alike, alike[::-1]))])
    bins = bins_of(sizes)
    one, two = (NoisyTable((bins[name],), np.ones(2), np.ones(2)) for name in sizes)
    views = [TableTarget.of(table, layout, 2) for table in (one, two)]
    assert Targets.of(views, layout).size == 2 * Targets.of(views[:1], layout).size


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_gradients_are_those_of_the_loss(layout):
    bins, rng = bins_of(SIZES), np.random.default_rng(2)
    sets = [("a",), ("b",), ("a", "b"), ("c", "b", "a")]
    targets = []
    for names in sets:
        coarsenings = tuple(
            bins[name] if len(names) == 1 else coarse(bins[name], 4) for name in names
        )
        shape = tuple(coarsening.size for coarsening in coarsenings)
        deviation = rng.uniform(5, 20, shape)
        targets.append(
            TableTarget.of(
                NoisyTable(coarsenings, rng.uniform(0, 200, shape), deviation), layout, 1_000
            )
        )
    start = mixture_on(layout)
    weights, shares = (t.double().requires_grad_() for t in (start.weights, start.shares))
    targets = [TableTarget(t.views, t.weighted.double(), t.precision.double()) for t in targets]
    listed = Targets.of(targets, layout)
    listed = replace(listed, weighted=listed.weighted.double(), precision=listed.precision.double())
    loss = sum(
        0.5
        * (
            (_table(weights, shares, layout, t) - t.weighted / t.precision).square() * t.precision
        ).sum()
        for t in targets
    )
    loss.backward()
    to_weights, to_shares = gradient(Mixture(layout, weights.detach(), shares.detach()), listed)
    torch.testing.assert_close(to_weights, weights.grad)
    torch.testing.assert_close(to_shares, shares.grad)


def _table(weights, shares, layout, target):
    folded = weights[None]
    views = []
    for view in target.views:
        own = shares[layout.edges[view.factor] : layout.edges[view.factor + 1]]
        if (of := view.products) is not None:
            sums = torch.zeros(of.size, COMPONENTS).double().index_add(0, of.sums, own[of.levels])
            own = sums[of.rows].prod(1)
        views.append(
            own
            if view.index is None
            else torch.zeros(view.size, COMPONENTS).double().index_add(0, view.index, own)
        )
    for part in views[:-1]:
        folded = (folded[:, None] * part[None]).flatten(0, 1)
    return folded @ views[-1].T


def test_the_penalty_is_the_slope_of_the_information_of_components():
    layout = LAYOUTS["separate"]
    start = mixture_on(layout)
    weights, shares = (t.double().requires_grad_() for t in (start.weights, start.shares))
    mean = (shares @ weights).detach()
    (weights * (shares * torch.log(shares / mean[:, None])).sum(0)).sum().backward()
    to_weights, to_shares = torch.zeros_like(weights), torch.zeros_like(shares)
    add_dependence_penalty(
        Mixture(layout, weights.detach(), shares.detach()), torch.tensor(7.0), to_weights, to_shares
    )
    torch.testing.assert_close(to_weights, 7 * weights.grad, atol=1e-7, rtol=1e-6)
    constant = (
        7 * weights.detach()
    )  # the same for all levels of a factor: nothing where shares sum to one
    torch.testing.assert_close(to_shares + constant, 7 * shares.grad, atol=1e-7, rtol=1e-6)


def test_what_a_component_tells_inside_a_branch_counts_for_the_rows_in_it():
    """The information on the branch, and, given it, on each attribute's level in its set."""
    layout = LAYOUTS["branches"]
    start, factor, (first, *sets) = mixture_on(layout), layout.factors[0], layout.ranges
    weights, shares = (t.double().requires_grad_() for t in (start.weights, start.shares))
    loss, reaches = _information(weights, shares[first]), []
    for found, variant in factor.branches.variants:
        reaches += [shares[first][torch.as_tensor(variant == v)].sum(0) for v in range(len(found))]
    for part, reach in zip(sets, [*reaches, torch.ones_like(weights)], strict=True):
        loss = loss + _information(weights * reach, shares[part])
    loss.backward()
    to_weights, to_shares = torch.zeros_like(weights), torch.zeros_like(shares)
    fixed = Mixture(layout, weights.detach(), shares.detach())
    add_dependence_penalty(
        *(fixed, torch.tensor(1.0), to_weights, to_shares), reached=layout.reached
    )
    torch.testing.assert_close(to_weights, weights.grad, atol=1e-7, rtol=1e-6)
    for part in layout.ranges:  # up to a constant in each range: shares in it sum to one
        difference = (to_shares - shares.grad)[part]
        torch.testing.assert_close(difference, difference[:1].expand_as(difference))


def _information(weights, shares):
    """The sum over components of their weight times the divergence of their shares from all."""
    mean = ((weights * shares).sum(1) / weights.sum()).detach()
    return (weights * (shares * torch.log(shares / mean[:, None])).sum(0)).sum()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_dependence_of_targets_costs_less(layout):
    """The same slopes in their factor, times one number, and the same in all others."""
    even, less = (
        DependencePenalty(2.0, tuple(targets)).of_levels(layout).ravel() for targets in ("", "c")
    )
    of_target = torch.zeros(len(even), dtype=torch.bool)
    number = layout.factor_of["c"]
    of_target[layout.edges[number] : layout.edges[number + 1]] = True
    assert (even == 2).all() and (less[~of_target] == 2).all()
    assert 0 < less[of_target].min() == less[of_target].max() < 1


def test_a_target_keeps_more_of_what_others_tell_of_it():
    """The same noisy tables of two equally dependent pairs, one of them of a target."""
    layout, half = separate_factors(dict.fromkeys("abcd", 2)), np.array([[0.4, 0.1], [0.1, 0.4]])
    bins, rows = bins_of(layout.sizes), 1_000
    pairs = [tuple(bins[name] for name in names) for names in ("ab", "cd")]
    tables = [NoisyTable(pair, rows * half, 40.0) for pair in pairs]
    fit = Fit(mixture_on(layout), DependencePenalty(100.0, ("d",)))
    fit.descend([TableTarget.of(table, layout, rows) for table in tables], 400, 0.05, 0.002)
    other, target = (fit.mixture.marginal(pair).trace() for pair in pairs)
    assert 0.5 < other < target - 0.02 < 0.8


def test_joined_factors_keep_every_support_and_lose_nothing_allowed():
    sizes = {"a": 3, "b": 3, "c": 2, "d": 4}
    first = Factor(("a", "b"), np.array([[0, 0], [1, 0], [1, 2], [2, 1]]))
    second = Factor(("c", "b"), np.array([[0, 0], [1, 1], [1, 2], [0, 2]]))
    layout = join_feasible_sets(sizes, [first, second])
    names = layout.factors[0].attributes
    rows = {
        tuple(dict(zip(names, row, strict=True))[name] for name in "abc")
        for row in layout.factors[0].levels.tolist()
    }
    pairs = [set(map(tuple, feasible_set.levels.tolist())) for feasible_set in (first, second)]
    assert rows == {
        (a, b, c)
        for a, b, c in product(range(3), range(3), range(2))
        if (a, b) in pairs[0] and (c, b) in pairs[1]
    }
    moved = transfer(mixture_on(separate_factors(sizes)), layout)
    for at in range(len(layout.factors)):
        torch.testing.assert_close(moved.factor(at).sum(0), torch.ones(COMPONENTS))


def test_factors_that_are_empty_or_too_large_are_not_joined():
    large = np.array(list(product(range(300), repeat=2)))
    assert join_feasible_sets({"a": 300, "b": 300}, [Factor(("a", "b"), large)]) is None
    pair, none = ("a", "c"), np.zeros((0, 2), dtype=np.int64)
    assert join_feasible_sets(SIZES, [Factor(pair, none)]) is None
    assert arrange_factors(SIZES, tuple(SIZES), [FeasibleSet(pair, none)]) is None


def test_candidates_are_modest_cover_every_attribute_and_are_expected_as_the_marginals_say():
    bins = bins_of({"a": 2, "b": 40, "c": 150, "d": 9, "e": 120})
    wanted = measurements.candidate_tables(bins, 10_000, seed=3)
    for coarsenings in wanted:
        assert np.prod([r.size for r in coarsenings]) <= (
            PAIR_CELLS if len(coarsenings) == 2 else measurements.TRIPLE_CELLS
        )
        assert len({r.name for r in coarsenings}) == len(coarsenings)
    assert {r.name for coarsenings in wanted for r in coarsenings} == set(bins)
    assert any({r.whole for r in coarsenings} == {True, False} for coarsenings in wanted)
    ((alone,),) = measurements.candidate_tables(bins_of({"a": 4}), 100, seed=1)
    assert alone.name == "a"
    mixture = mixture_on(LAYOUTS["separate"])
    wanted = measurements.candidate_tables(bins_of(SIZES), 1_000, seed=1)
    shares = measurements.expected_shares(mixture, wanted)
    assert {len(coarsenings) for coarsenings in wanted} == {2, 3}
    for coarsenings in wanted:
        np.testing.assert_allclose(shares[coarsenings], mixture.marginal(coarsenings), atol=1e-6)


def test_few_parts_are_candidates_where_noise_is_strong_and_few_pairs_are_measured():
    """64 cells of 5 rows are a third of 1,000 rows: what dependence puts elsewhere is less."""
    assert measurements.few_parts_pay(47, 1_000, tables=35, noise_of_cell=5)
    assert not measurements.few_parts_pay(47, 1_000, tables=35, noise_of_cell=3)
    assert not measurements.few_parts_pay(13, 1_000, tables=28, noise_of_cell=5)
    for few_parts, least in ((False, 8), (True, 4)):
        wanted = measurements.candidate_tables(bins_of({"a": 40, "b": 40}), 1_000, 3, few_parts)
        assert min(r.size for coarsenings in wanted for r in coarsenings) == least


class RecordingDoor:
    """Answers each selection with the second candidate and each count with zeros."""

    neighbours = Neighbours()

    def __init__(self, fit):
        self._fit, self.mixtures, self.asked = fit, [], []

    def answer(self, query, mechanism, label):
        self.asked.append((query, mechanism, label))
        self.mixtures.append(self._fit.mixture)
        if isinstance(query, CandidateScores):
            return 1
        return np.zeros([part.size for part in query.partitions], dtype=np.int64)


def test_a_round_scores_what_the_model_expects_less_half_the_noise_and_measures_what_is_chosen():
    fit, bins, rows = (
        Fit(mixture_on(LAYOUTS["separate"]), DependencePenalty(1.0)),
        bins_of(SIZES),
        1_000,
    )
    door, done = RecordingDoor(fit), []
    parameters = MixtureParameters(
        noise={"selection": Fraction(1), "rounds": Fraction(5)},
        histogram_noise={},
        by_value=(),
        joint_tables=(),
        joint_noise=(),
        rounds=2,
        steps=3,
        groups=32,
        components=COMPONENTS,
        dependence_penalty=1.0,
    )
    released = run_rounds(
        door, parameters, fit, (), bins, rows, lambda *progress: done.append(progress)
    )
    assert [label for *_, label in door.asked] == ["round 1", "round 1", "round 2", "round 2"]
    assert done == [(1, 2), (2, 2)]
    deviation = DiscreteGaussian(Fraction(5)).scale(door.neighbours.partition)
    for at in (0, 2):
        selection, counting = door.asked[at][0], door.asked[at + 1][0]
        for candidate in selection.candidates:
            expected = rows * door.mixtures[at].marginal(candidate.partitions)
            np.testing.assert_allclose(candidate.expected, expected, rtol=1e-3, atol=1e-3)
            noise = expected.size * deviation * (2 / np.pi) ** 0.5
            assert candidate.penalty == pytest.approx(noise / 2)
        table = released[at // 2]
        assert counting.partitions == table.partitions == selection.candidates[1].partitions
        assert table.deviation == deviation
    first, second = (door.mixtures[at].marginal(released[0].partitions).sum() for at in (0, 2))
    assert first == pytest.approx(1, abs=1e-5) and second == pytest.approx(1, abs=1e-5)


class FirstPairs:
    """Answers each selection with its first open pair."""

    def __init__(self):
        self.asked = []

    def answer(self, query, mechanism, label):
        self.asked.append((query, label))
        first, second = np.argwhere(query.open)[0]
        return int(first), int(second)


def test_pairs_of_a_round_make_no_circle_and_are_scored_by_what_the_model_expects():
    """More than attributes can be joined by are chosen with circles."""
    fit, bins = Fit(mixture_on(LAYOUTS["separate"]), DependencePenalty(1.0)), bins_of(SIZES)
    door, labels = FirstPairs(), [f"table {at}" for at in range(len(bins) - 1)]
    parts = tuple(coarse(own, 2) for own in bins.values())
    chooser = measurements.TableChoice(Exponential(Fraction(1)), 1_000, 2.0)
    chosen = measurements.AllPairs(parts).choose(door, fit.mixture, chooser, labels)
    assert [label for _, label in door.asked] == labels
    joined = {name: {name} for name in bins}
    for first, second in chosen:
        assert joined[first.name] is not joined[second.name]
        together = joined[first.name] | joined[second.name]
        joined |= dict.fromkeys(together, together)
    query, _ = door.asked[0]
    begins = np.cumsum([0, *(own.size for own in parts)])
    for one, other in combinations(range(len(parts)), 2):
        own = query.expected[begins[one] : begins[one + 1], begins[other] : begins[other + 1]]
        expected = 1_000 * fit.mixture.marginal((parts[one], parts[other]))
        np.testing.assert_allclose(own, expected, rtol=1e-3, atol=1e-3)
        assert query.penalties[one, other] == 2.0 * own.size
    many = [str(at) for at in range(9)]
    assert len(measurements.AllPairs(parts).choose(FirstPairs(), fit.mixture, chooser, many)) == 9
