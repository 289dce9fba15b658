"""The algorithm as printed: exact projections, exactly so many links, its own refusals."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.errors import PlanError
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.relational.paper.joint_tables import MOST_CANDIDATES, workloads
from cloister.models.relational.paper.model import DrawnLinks, PaperModel
from cloister.models.relational.paper.plan import printed_rho
from cloister.models.relational.paper.relationship import (
    project_capped,
    project_columns,
    sample_exactly,
)
from cloister.models.task import Budget, DatabaseTask, Task
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateDatabase
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.attributes import Categorical, TextKey
from cloister.schema.domain import Domain, Table
from cloister.schema.fan_outs import rows_changed
from cloister.schema.relations import Database, ForeignKey, Schema, joined_tables, row_tables

KIND = Categorical(type="categorical", values=["a", "b"])
USER, MOVIE = (TextKey(type="text", pattern=f"{letter}{{1..999999}}") for letter in "UM")
TABLES = {
    "users": Domain.of({"id": USER, "kind": KIND}, Path()),
    "movies": Domain.of({"id": MOVIE, "kind": KIND}, Path()),
}
LINKS = Schema(
    {**TABLES, "ratings": Domain.of({"user": USER, "movie": MOVIE}, Path())},
    (
        ForeignKey("ratings", "user", "users", "id", 3),
        ForeignKey("ratings", "movie", "movies", "id", 9),
    ),
    ("users", "movies", "ratings"),
)
CHILDREN = Schema(
    {"users": TABLES["users"], "visits": Domain.of({"user": USER, "kind": KIND}, Path())},
    (ForeignKey("visits", "user", "users", "id", 3),),
    ("users",),
)


@pytest.mark.parametrize(
    ("shares", "draws"),
    [
        ([0.9, 0.8, 0.2, 0.1], 2_000),
        ([0.05] * 20 + [1.0, 0.7, 0.3], 2_000),
        pytest.param([0.3, 0.3, 0.4, 0.6, 0.7, 0.7], 100_000, marks=pytest.mark.slow),
        ([1.0, 1.0, 0.0], 1_000),
    ],
)
def test_exactly_so_many_are_sampled_each_with_its_share(shares: list[float], draws: int) -> None:
    """Algorithm 3: frequencies lie within six standard errors of the shares."""
    number = round(sum(shares))
    rng, counts = np.random.default_rng(1), np.zeros(len(shares))
    for _ in range(draws):
        chosen = sample_exactly(np.array(shares), number, rng)
        assert len(set(chosen.tolist())) == number
        counts[chosen] += 1
    errors = np.sqrt(np.array(shares) * (1 - np.array(shares)) / draws)
    assert (np.abs(counts / draws - shares) <= 6 * errors + 1e-9).all()


def test_candidates_have_an_attribute_of_each_side() -> None:
    assert len(workloads("ab", "xyz")) == 2 * 3 + 1 * 3 + 2 * 3
    assert len(workloads(range(30), range(30))) == 900 <= MOST_CANDIDATES


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8))
def test_the_projection_of_a_row_that_refers_is_the_nearest_simplex(points: list[float]) -> None:
    """Algorithm 7, against a bisection."""
    projected = project_columns(np.array([[point, 0.0] for point in points]))[:, 0]
    low, high = min(points) - 2, max(points)
    for _ in range(100):
        middle = (low + high) / 2
        above = np.maximum(np.array(points) - middle, 0).sum() > 1
        low, high = (middle, high) if above else (low, middle)
    assert projected == pytest.approx(np.maximum(np.array(points) - low, 0), abs=1e-9)
    assert projected.sum() == pytest.approx(1)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=12), st.data())
def test_the_projection_is_the_nearest_point(points: list[float], data: st.DataObject) -> None:
    """Theorem 2, against the condition that makes a point nearest: one nu for all shares."""
    point = np.array([points])
    mass = data.draw(st.floats(0.01, len(points) - 0.001))
    nearest = project_capped(point, mass)
    assert nearest.sum() == pytest.approx(mass, abs=1e-6)
    assert nearest.min() >= 0
    assert nearest.max() <= 1
    feasible = np.clip(np.random.default_rng(1).random(nearest.shape), 0, 1)
    feasible = project_capped(feasible, mass)
    assert np.sum((point - nearest) ** 2) <= np.sum((point - feasible) ** 2) + 1e-6


def test_lemma_4_backwards() -> None:
    rho = float(printed_rho(Fraction(2), Fraction(1, 10**6)))
    assert rho + 2 * np.sqrt(rho * np.log(10**6)) == pytest.approx(2, abs=1e-6)


def task_of(schema: Schema, rows: dict[str, int], **options) -> DatabaseTask:
    relation, changed = Relation.REPLACE_ONE, rows_changed(schema)
    tables = {
        name: Task(domain, (), rows[name], Neighbours(relation, changed[name]))
        for name, domain in schema.tables.items()
    }
    options = {"table_method": "independent", **options}
    return DatabaseTask(schema, tables, Neighbours(relation), options=options)


def database(schema: Schema, rows: dict[str, int]) -> Database:
    """Users have links to movies, or visits, of their own kind."""
    tables, rng = {}, np.random.default_rng(2)
    for name, domain in schema.tables.items():
        number = np.arange(rows[name])
        codes = {"id": number, "kind": number % 2}
        if name == "ratings":
            users = number % rows["users"]
            codes = {"user": users, "movie": 2 * rng.integers(0, rows["movies"] // 2, len(number))}
            codes["movie"] += users % 2
        if name == "visits":
            codes = {"user": number % rows["users"], "kind": number % rows["users"] % 2}
        tables[name] = Table(domain, {column: codes[column] for column in domain.names})
    return Database(schema, tables)


@pytest.fixture
def fitted(tmp_path: Path) -> Callable[[DatabaseTask, Database, Fraction], PaperModel]:
    """Fit through the door, and restore from the saved state."""

    def made(task: DatabaseTask, real: Database, epsilon: Fraction) -> PaperModel:
        method = create("relational-paper")
        plan = make_plan(method, task, Budget(epsilon, Fraction(1, 10**6)))
        assert spend(plan.event, Fraction(1, 10**6), Relation.REPLACE_ONE).epsilon <= epsilon
        behind, changed = {**row_tables(real), **joined_tables(real)}, rows_changed(task.schema)
        most = {name: Neighbours(Relation.REPLACE_ONE, changed[name]) for name in behind}
        with Journal.open(tmp_path / "journal", {"test": "paper"}) as journal:
            door = PrivateDatabase(behind, most, plan.event, journal, NoiseSource.insecure(1))
            model = method.train(door, task, plan)
            assert not door.plan_budget.remaining
        meta, arrays = model.state()
        return method.restore(task, meta, arrays)

    return made


@pytest.fixture
def release(fitted) -> Callable[[DatabaseTask, Database, Fraction], Database]:
    """Fit, restore and draw."""

    def made(task: DatabaseTask, real: Database, epsilon: Fraction) -> Database:
        return fitted(task, real, epsilon).sample(task.output_rows, SamplingSource(3))

    return made


def test_each_slice_is_rounded_and_its_links_take_their_place_in_every_round(fitted) -> None:
    """Section 6: the matrix is of links throughout, and a slice changes no others."""
    rows = {"users": 120, "movies": 90, "ratings": 300}
    task = task_of(LINKS, rows, rounds=2, workloads=1, slice=40, slices=1)
    model = fitted(task, database(LINKS, rows), Fraction(60))
    drawn = DrawnLinks.of(task, model.models, task.output_rows, SamplingSource(3))
    matrix = model.relationship(drawn, model.link)
    for _ in range(3):
        before = matrix.matrix.copy()
        matrix.learn(model.link)
        assert set(np.unique(matrix.matrix)) == {0, 1}
        assert matrix.matrix.sum() == 300
        changed = np.argwhere(matrix.matrix != before)
        assert len(changed) > 0
        assert max(len(np.unique(side)) for side in changed.T) <= 40
    links = set(zip(*(side.tolist() for side in matrix.links()), strict=True))
    assert links == set(map(tuple, np.argwhere(matrix.matrix).tolist()))


@pytest.mark.parametrize("slice_", [1_000, 40])
def test_links_are_distinct_as_many_as_declared_and_follow_kinds(release, slice_: int) -> None:
    rows = {"users": 120, "movies": 90, "ratings": 300}
    task = task_of(LINKS, rows, rounds=2, workloads=1, slice=slice_, slices=30)
    drawn = release(task, database(LINKS, rows), Fraction(60))
    ratings = drawn.tables["ratings"].codes
    pairs = set(zip(ratings["user"].tolist(), ratings["movie"].tolist(), strict=True))
    assert len(pairs) == drawn.rows["ratings"] == 300
    assert [broken for _, broken in drawn.dangling()] == [0, 0]
    kinds = [drawn.tables[name].codes["kind"] for name in ("users", "movies")]
    same = kinds[0][ratings["user"]] == kinds[1][ratings["movie"]]
    assert same.mean() > (0.85 if slice_ == 1_000 else 0.6)


def test_each_row_has_one_parent_where_there_is_one_reference(release) -> None:
    """Algorithm 7."""
    rows = {"users": 100, "visits": 250}
    task = task_of(CHILDREN, rows, rounds=1, workloads=1)
    drawn = release(task, database(CHILDREN, rows), Fraction(60))
    visits = drawn.tables["visits"].codes
    assert drawn.rows["visits"] == 250
    assert (drawn.tables["users"].codes["kind"][visits["user"]] == visits["kind"]).mean() > 0.85


THIRD = Schema(
    {**CHILDREN.tables, "cards": Domain.of({"user": USER, "kind": KIND}, Path())},
    (*CHILDREN.keys, ForeignKey("cards", "user", "users", "id", 1)),
)


@pytest.mark.parametrize(
    ("task", "delta", "message"),
    [
        (task_of(LINKS, {"users": 10**5, "movies": 10**4, "ratings": 10**5}), 1, "each of 1,000,"),
        (task_of(LINKS, {"users": 9, "movies": 9, "ratings": 9}), 0, "adds Gaussian noise"),
        (task_of(THIRD, {"users": 9, "visits": 9, "cards": 9}), 1, "relates two tables"),
        (task_of(CHILDREN, {"users": 9, "visits": 9}, epsilon=3), 1, "have all of epsilon"),
    ],
)
def test_what_the_paper_does_not_cover_is_refused_in_the_plan(task, delta, message) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(create("relational-paper"), task, Budget(Fraction(3), Fraction(delta, 10**6)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fitted": 3}, "release.options.fitted: "),
        ({"table_method": "relational"}, "is of several tables"),
        ({"epsilon": 2}, "release.options.epsilon: "),
    ],
)
def test_keys_that_a_method_does_not_know_are_refused(options: dict, message: str) -> None:
    task = task_of(CHILDREN, {"users": 9, "visits": 9})
    task = replace(task, options=options)
    with pytest.raises(PlanError, match=message):
        make_plan(create("relational"), task, Budget(Fraction(2), Fraction(1, 10**6)))
