"""An earlier release as evidence: what is pooled, what a change of the table does to it."""

from fractions import Fraction

import numpy as np
import pytest
from declared_table import domain_of
from hypothesis import given, settings
from hypothesis import strategies as st
from private_table import PrivateTable

from cloister.evaluation.marginals import compare_marginals
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import HistogramCounts
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.mixture.prior import EarlierTables, pool_histograms, refine_bins
from cloister.models.mixture.synthesizer import MixtureSynthesizer
from cloister.models.protocol import fit, make_plan
from cloister.models.task import Budget, Task
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Table
from cloister.schema.partition import declared_cells, intervals

ROWS = 2_000
DOMAIN = domain_of(
    town=Categorical(type="categorical", values=list("abcdef")),
    age=Integer(type="integer", min=0, max=63),
    score=Integer(type="integer", min=0, max=63),
    member=Categorical(type="categorical", values=["no", "yes"]),
)
AGES = declared_cells(DOMAIN["age"])


def people(rng):
    age = np.minimum(rng.gamma(4, 6, ROWS), 63).astype(np.int64)
    score = np.clip(age + rng.normal(0, 5, ROWS), 0, 63).astype(np.int64)
    codes = {
        "town": np.minimum(age // 8 + rng.integers(0, 2, ROWS), 5),
        "age": age,
        "score": score,
        "member": (rng.random(ROWS) < score / 64).astype(np.int64),
    }
    return Table(DOMAIN, codes)


def counts(deviation, rng, of=None):
    exact = np.linspace(10, 1_000, AGES.size) if of is None else of
    wide = np.add.reduceat(exact, np.arange(0, AGES.size, 4))
    wide_ages = intervals(AGES.column, AGES.starts[::4])

    def noisy(partition, rows):
        return NoisyTable((partition,), rows + rng.normal(0, deviation, len(rows)), deviation)

    return HistogramCounts(noisy(AGES, exact), (noisy(wide_ages, wide),), noisy(AGES, exact))


def test_counts_of_the_same_rows_are_pooled_by_inverse_variance_and_those_of_fewer_scaled():
    rng, exact = np.random.default_rng(1), np.linspace(10, 1_000, AGES.size)
    found = pool_histograms(counts(30.0, rng), counts(40.0, rng), 1.0)
    assert found.change == 0
    pooled = [found.counted.cells, found.counted.values]
    assert [table.noise for table in pooled] == pytest.approx([24.0, 24.0])
    assert np.std([table.counts - exact for table in pooled]) == pytest.approx(24.0, rel=0.3)
    found = pool_histograms(counts(30.0, rng), counts(0.001, rng, exact / 2), 2.0)
    np.testing.assert_allclose(found.counted.cells.counts, exact, atol=0.1)


def test_counts_of_other_rows_hardly_count():
    rng = np.random.default_rng(3)
    new, old = counts(30.0, rng), counts(3.0, rng, np.linspace(3_000, 10, AGES.size))
    found = pool_histograms(new, old, 1.0)
    assert found.change > 0
    assert found.counted.cells.noise == pytest.approx(30.0, rel=0.01)
    np.testing.assert_allclose(found.counted.cells.counts, new.cells.counts, atol=10)


@given(st.data())
@settings(max_examples=50)
def test_no_refined_bin_has_parts_of_two_earlier_ones(data):
    def bins():
        cuts = data.draw(st.sets(st.integers(1, AGES.size - 1), max_size=20))
        begins = np.isin(np.arange(AGES.size), list(cuts))
        shares = np.array(data.draw(st.lists(st.floats(0.1, 1), min_size=64, max_size=64)))
        return Histogram.over(AGES, np.cumsum(begins), shares / shares.sum())

    earlier, own = bins(), bins()
    refined = refine_bins(earlier, own)
    codes = np.arange(AGES.column.size)
    pairs = np.unique(np.column_stack([refined.index(codes), earlier.index(codes)]), axis=0)
    assert len(pairs) == refined.size
    assert refined.shares.sum() == pytest.approx(1)
    assert (np.diff(refined.parts) >= 0).all()
    inside = np.unique(np.column_stack([earlier.index(codes), own.index(codes)]), axis=0)
    if np.bincount(inside[:, 0]).max() < 3:
        assert refined.size == earlier.size


def bins_of(name):
    cells = declared_cells(DOMAIN[name])
    return Histogram.over(cells, np.arange(cells.size) // 4, np.full(cells.size, 1 / cells.size))


BINS = {name: bins_of(name) for name in ("age", "score")}
HALVES = {name: own.coarsen(np.arange(own.size) // 2) for name, own in BINS.items()}


def earlier_with(counts):
    table = NoisyTable((BINS["age"], BINS["score"]), counts, 5.0)
    numbers = ReleasedCounts(ROWS, {}, BINS, (table,))
    return EarlierTables.of(numbers, BINS, dict.fromkeys(BINS, 0.0), ROWS)


def test_a_new_table_that_disagrees_takes_its_weight_from_an_earlier_one():
    counts = np.arange(256.0).reshape(16, 16)
    halves = counts[::-1].reshape(8, 2, 8, 2).sum((1, 3))
    new = NoisyTable((HALVES["age"], HALVES["score"]), halves, 5.0)
    earlier = earlier_with(counts).compared_with(new)
    assert (earlier.marginals[0].deviation > 25).all()
    assert earlier.compared_with(NoisyTable((HALVES["age"],), halves.sum(1), 5.0)) == earlier


def test_a_table_of_the_same_cells_is_pooled_and_used_once():
    counts = np.arange(256.0).reshape(16, 16)
    table, others = earlier_with(counts).pooled_with(
        NoisyTable((BINS["age"], BINS["score"]), counts, 5.0)
    )
    assert others.tables == ()
    np.testing.assert_allclose(table.counts, counts)
    assert table.deviation == pytest.approx(5 / 2**0.5)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Fit the same rows at some epsilon, after an earlier model; with the rows and the task."""
    table = people(np.random.default_rng(4))
    task = Task(DOMAIN, (), ROWS, Neighbours())

    def of(epsilon, rows=table, earlier=None, seed=1):
        method = MixtureSynthesizer()
        method = method.following(earlier) if earlier else method
        plan = make_plan(method, task, Budget(Fraction(epsilon), Fraction(1, 10**6)))
        with Journal.open(tmp_path_factory.mktemp("prior"), {"run": "prior"}) as journal:
            noise = NoiseSource.insecure(seed)
            private = PrivateTable(rows, task.neighbours, plan.event, journal, noise)
            model = fit(method, private, task, plan)
        assert dict(private.plan_budget.remaining) == {}
        return model

    return table, task, of


def error(model, table):
    return compare_marginals(table, model.sample(ROWS, SamplingSource(1)))[1].half_l1


def test_a_release_after_a_precise_one_is_much_nearer_and_spends_the_same(brief_training, fitted):
    table, task, of = fitted
    first = of("5")
    meta, arrays = first.state()
    restored = MixtureSynthesizer().restore(task, meta, arrays)
    after, alone = of("0.3", earlier=restored), of("0.3")
    assert error(after, table) < 0.6 * error(alone, table)
    again = of("0.3", earlier=first)
    assert all(
        (again.released_counts.tables[at].counts == own.counts).all()
        for at, own in enumerate(after.released_counts.tables)
    )


@pytest.mark.slow
def test_a_precise_release_of_other_rows_is_not_believed(fitted):
    """With whole training: briefly trained, the earlier numbers alone are followed."""
    table, _, of = fitted
    rng = np.random.default_rng(5)
    mixed = Table(DOMAIN, {n: own[rng.permutation(ROWS)] for n, own in table.codes.items()})
    mixed.codes["age"][:] = 63 - mixed.codes["age"]
    assert error(of("1", earlier=of("5", rows=mixed)), table) < 1.25 * error(of("1"), table)
