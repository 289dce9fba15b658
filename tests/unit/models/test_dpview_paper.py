"""DPView as printed: its numbers, equal buckets, the guideline, linking by a matching."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from declared_table import domain_of
from hypothesis import given, settings
from hypothesis import strategies as st
from links import count_matches
from noisy_tables import noisy_table

from cloister.errors import PlanError, SpecError
from cloister.models.dpview.paper import plan
from cloister.models.dpview.sampler import Records, apply_referee, by_matching, by_priority
from cloister.models.dpview.tables import round_largest
from cloister.models.dpview.views import best_views
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, Task, task_of
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.partition import equal_cells
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

ADULT = Path(__file__).parents[3] / "data" / "specs" / "adult.yaml"
PURE = Budget(Fraction(1), Fraction(0))


def adult(**options):
    """Adult as the paper has it: 48,842 rows of 15 attributes, without constraints."""
    spec = load_spec(ADULT)
    return replace(task_of(spec, {spec.name: 48_842}).lead, constraints=(), options=options)


def shape_of(method, task):
    return make_plan(create(method), task, PURE).parameters.shape


def test_adult_has_five_views_of_five_and_seven_with_upper_cross_views():
    for options in ({}, {"view_width": 5}):
        assert len(shape_of("dpview-paper", adult(**options)).views.linked) == 5
        views = shape_of("dpview+-paper", adult(**options)).views
        assert (len(views.linked), len(views.referees)) == (5, 2)
        assert {len(view) for view in views.linked} == {5}


def test_the_rounding_that_the_paper_prints():
    rng = np.random.default_rng(0)
    rounded = round_largest(np.array([[0.4, 3.3, 1.3]]), np.array([5]), rng)
    assert rounded.tolist() == [[1, 3, 1]]
    tied = [
        round_largest(np.array([[0.3, 3.3, 1.3]]), np.array([5]), rng)[0].tolist()
        for _ in range(60)
    ]
    # 0.3 of 4.9 becomes 0.306, of which the fraction is the least of the three
    assert {tuple(each) for each in tied} == {(0, 4, 1)}


@given(
    st.lists(st.lists(st.floats(0, 50), min_size=4, max_size=4), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_largest_fractions_give_whole_counts_of_the_wanted_sums(lines, seed):
    rng = np.random.default_rng(seed)
    counts, targets = np.array(lines), rng.integers(0, 90, len(lines))
    whole = round_largest(counts, targets, rng)
    assert (whole >= 0).all()
    assert whole.sum(1).tolist() == targets.tolist()
    present = counts.sum(1) > 0
    scaled = counts[present] / counts[present].sum(1, keepdims=True) * targets[present, None]
    assert (np.abs(whole[present] - scaled) < 1 + 1e-9).all()


def test_the_referee_of_the_papers_example_decides_which_records_go_together():
    """Section IV-G: of two records with a4 = 0, u1 holds (a1 = 4, a5 = 5, a6 = 3)."""
    names = ("a1", "a2", "a3", "a4", "a5", "a6")
    erroneous = np.array([[4, 9, 4, 0, 2, 1], [1, 7, 2, 0, 5, 3]])
    counts = np.zeros((6, 6, 6))
    counts[4, 5, 3] = counts[1, 2, 1] = 1
    referee = noisy_table(("a1", "a5", "a6"), counts, 1.0)
    judged = apply_referee(
        Records(names, erroneous), ("a4",), ("a5", "a6"), referee, np.random.default_rng(0)
    )
    assert judged.parts.tolist() == [[4, 9, 4, 0, 5, 3], [1, 7, 2, 0, 2, 1]]


@pytest.mark.parametrize("pairing", [by_priority, by_matching])
def test_the_motivating_example_of_a_matching(pairing):
    """Section IV-F: one [0, 0] that fits a4 = 3 and 4, two [0, 1] that fit a4 = 3 alone."""
    left, right = np.array([[0, 0], [0, 1], [0, 1]]), np.array([[0, 1], [0, 0]])
    right = np.vstack([right, [[9, 9]]])
    taken = pairing(left, right, np.array([1, 2, 2]), np.random.default_rng(3))
    assert count_matches(left, right, taken) == 2


def test_numbers_are_cut_into_equal_buckets():
    domain = domain_of(
        age=Integer(type="integer", min=0, max=99, special=[50], nullable=True),
        sex=Categorical(type="categorical", values=["f", "m"]),
    )
    assert equal_cells(domain["age"], 5).starts.tolist() == [0, 20, 40, 50, 51, 60, 80, 100]
    assert equal_cells(domain["sex"], 5).size == 2
    assert plan.bucket_sizes(Task(domain, (), 100, Neighbours()), 5) == {"age": 8, "sex": 2}


@pytest.mark.parametrize("method", ["dpview", "dpview+", "dpview-paper", "dpview+-paper"])
def test_a_width_that_is_asked_for_is_that_of_the_views(method):
    for width in (2, 4):
        assert max(map(len, shape_of(method, adult(view_width=width)).views.linked)) == width
    parts = make_plan(create(method), adult(view_width=3, parts=4), PURE).parameters.shape.parts
    assert parts == 4


def test_a_view_too_large_is_refused_and_dpview_plus_says_where_it_has_no_referees():
    with pytest.raises(PlanError, match="declare fewer bins or values"):
        make_plan(create("dpview-paper"), adult(view_width=15, parts=50), PURE)
    words = [stage.explanation for stage in make_plan(create("dpview+"), adult(), PURE).stages]
    assert any("so that this is the plan of dpview" in each for each in words)


def test_the_guideline_gives_wider_views_to_more_rows_and_greater_epsilon():
    sizes = plan.bucket_sizes(adult(), 16)
    widths = [plan.width_by_guideline(sizes, 1.0, rows) for rows in (100, 5_000, 48_842, 10**7)]
    assert widths == sorted(widths)
    assert widths[2] == 5
    assert plan.width_by_guideline(sizes, 0.2, 48_842) == 4
    assert 0 <= plan.share_above_noise(7, sizes, 0.01, 100) < 0.01


def test_random_partitions_hold_every_attribute_and_are_hardly_better_than_the_search():
    sizes = plan.bucket_sizes(adult(), 16)
    views = plan.random_views(sizes, 5)
    assert sorted(views.sequence) == sorted(sizes)
    assert views.within_bounds(sizes)
    assert best_views(sizes, 5).size(sizes) <= 1.1 * views.size(sizes)
    assert views == plan.random_views(dict(reversed(sizes.items())), 5)


def test_what_a_spec_says_of_views_is_of_these_methods_alone(tmp_path):
    text = ADULT.read_text().replace("release: {", "release: {options: {view_width: 3}, ")
    assert "view_width" in text
    path = tmp_path / "adult.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"release.options: method 'mixture' has no options"):
        resolve(ReleaseRequest(spec=path, method="mixture"))
    request = resolve(ReleaseRequest(spec=path, method="dpview", delta="0"))
    assert public_context_of(request).task.lead.options == {"view_width": 3}
