"""Measures of relationships against what pandas says of the same joins, and by known numbers."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.evaluation.relations import compare_relation, duplicate_links, joined_with_parents
from cloister.evaluation.report import Evaluation, evaluate_databases, unmeasured_evaluation
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain
from cloister.schema.relations import Database, ForeignKey, Schema


def late_imports():
    global write_relations, write_units
    from cloister.evaluation.plots import write_relations, write_units


USER = TextKey(type="text", pattern="U{1..999}")
FILM = TextKey(type="text", pattern="F{1..999}")
TABLES = {
    "users": {"id": USER, "age": Integer(type="integer", min=0, max=3)},
    "films": {"id": FILM, "kind": Categorical(type="categorical", values=["a", "b"])},
    "seen": {"user": USER, "film": FILM, "stars": Integer(type="integer", min=1, max=2)},
}
KEYS = (ForeignKey("seen", "user", "users", "id", 3), ForeignKey("seen", "film", "films", "id", 9))
SCHEMA = Schema({name: Domain.of(attributes, Path()) for name, attributes in TABLES.items()}, KEYS)


def database(users: list[int], films: str, seen: list[tuple[int, int, int]]) -> Database:
    """Users by age, films by kind, and who saw which, with how many stars; rows count from 1."""
    frames = {
        "users": {"id": [f"U{number}" for number in range(1, len(users) + 1)], "age": users},
        "films": {"id": [f"F{number}" for number in range(1, len(films) + 1)], "kind": [*films]},
        "seen": [{"user": f"U{user}", "film": f"F{film}", "stars": n} for user, film, n in seen],
    }
    encoded = {name: SCHEMA.tables[name].encode(pd.DataFrame(frames[name])) for name in frames}
    return Database(SCHEMA, encoded)


REAL = database([0, 1, 2, 3], "ab", [(1, 1, 1), (1, 2, 1), (2, 1, 2), (3, 2, 2)])
OTHER = database([0, 0, 1], "aab", [(1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 3, 1), (9, 1, 1)])


def test_references_degrees_and_bounds_are_counted() -> None:
    measures = compare_relation(REAL, OTHER, KEYS[0])
    assert (measures.rows, measures.orphans) == ((4, 4), (0, 1))
    assert measures.mean_degree == (1.0, pytest.approx(4 / 3))
    assert (measures.largest_degree, measures.beyond) == ((2, 4), (0, 1))
    # of real users 1/4, 1/2, 1/4 have 0, 1, 2 rows; of synthetic ones 2/3 none and 1/3 four
    assert measures.units.sizes == pytest.approx((5 / 12 + 1 / 2 + 1 / 4 + 1 / 3) / 2)
    links = [duplicate_links(REAL, "seen"), duplicate_links(OTHER, "seen")]
    assert (links, duplicate_links(OTHER, "users")) == ([0, 1], 0)


def test_equal_databases_have_no_distance() -> None:
    # rows joined by the second key have their user's age too, a third attribute
    for key, ways in zip(KEYS, ({2}, {2, 3}), strict=True):
        measures = compare_relation(REAL, REAL, key)
        metrics = measures.metrics()
        assert {name: value for name, value in metrics.items() if value} == {}
        assert {way.ways for way in measures.units.across} == ways
        assert measures.queries is not None


def random_database(seed: int, users: int = 40, rows: int = 300) -> Database:
    rng = np.random.default_rng(seed)
    seen = np.stack([rng.integers(1, most, rows) for most in (users + 3, 21, 3)], axis=1)
    return database(rng.integers(0, 4, users).tolist(), "ab" * 10, seen.tolist())


def _merged(whole: Database) -> pd.DataFrame:
    frames = {name: table.frame() for name, table in whole.tables.items()}
    return frames["seen"].merge(frames["users"], left_on="user", right_on="id")


def test_joint_tables_across_a_key_are_those_of_a_join_in_pandas() -> None:
    real, synthetic = random_database(1), random_database(2, 30, 200)
    measures = compare_relation(real, synthetic, KEYS[0])
    shares = [_merged(each).groupby(["age", "stars"]).size() for each in (real, synthetic)]
    shares = [counts / counts.sum() for counts in shares]
    expected = shares[0].sub(shares[1], fill_value=0).abs()
    ((marginal,),) = (way.sets for way in measures.units.across)
    assert set(marginal.attributes) == {"user: age", "stars"}
    assert marginal.half_l1 == pytest.approx(expected.sum() / 2)
    assert marginal.largest_cell == pytest.approx(expected.max())
    assert measures.rows == tuple(len(_merged(each)) for each in (real, synthetic))
    assert measures.orphans == tuple(
        each.tables["seen"].rows - len(_merged(each)) for each in (real, synthetic)
    )
    joined, above = joined_with_parents(real, KEYS[0])
    assert joined.domain.names[:above] == ("user: age",)
    rows = joined.frame()[["user: age", "stars"]], _merged(real)[["age", "stars"]]
    ours, expected = (sorted(map(tuple, each.to_numpy().tolist())) for each in rows)
    assert ours == expected


def test_siblings_are_ordered_pairs_of_rows_of_one_parent() -> None:
    # pairs 11, 12, 21 of the first user and 22 of the second, twice each; then 12 and 21 alone
    real = database([0, 1, 2], "a", [(1, 1, 1), (1, 1, 1), (1, 1, 2), (2, 1, 2), (2, 1, 2)])
    unlike = database([0, 1, 2], "a", [(1, 1, 1), (1, 1, 2), (3, 1, 2)])
    (stars,) = compare_relation(real, unlike, KEYS[0]).units.siblings
    assert (stars.half_l1, stars.largest_cell) == (pytest.approx(1 / 2), pytest.approx(1 / 4))
    alone = database([0, 1], "a", [(1, 1, 1), (2, 1, 1)])
    assert compare_relation(real, alone, KEYS[0]).units.siblings == ()


def test_rows_that_change_users_of_one_age_change_siblings_alone() -> None:
    alike = [(user, 1, 1 + user % 2) for user in range(1, 201) for _ in range(2)]
    mixed = [(user, 1, 1 + row) for user in range(1, 201) for row in range(2)]
    both = (database([0] * 200, "a", rows) for rows in (alike, mixed))
    metrics = compare_relation(*both, KEYS[0]).metrics()
    names = ("siblings", "sizes", "across")
    assert [metrics[f"{name}.half_l1"] for name in names] == pytest.approx([1, 0, 0])


def test_of_a_user_of_very_many_rows_as_many_pairs_are_compared_as_of_others() -> None:
    real = [(1, 1, 1 + row % 2) for row in range(5_000)] + [(2, 1, 1)] * 100
    both = (database([0, 0], "a", rows) for rows in (real, [(1, 1, 1)] * 2))
    (stars,) = compare_relation(*both, KEYS[0]).units.siblings
    assert stars.half_l1 == pytest.approx(3 / 8, abs=0.06)


def of_table(name: str, real, synthetic) -> Evaluation:
    return unmeasured_evaluation(real, synthetic, "quick")


def test_a_database_is_measured_as_a_whole_and_written(tmp_path: Path) -> None:
    evaluation = evaluate_databases(REAL, OTHER, "quick", of_table)
    metrics = evaluation.metrics()
    assert metrics["relations.orphans"] == 1
    assert metrics["seen.duplicate_links"] == 1
    assert metrics["seen.to_users_by_user.orphans"] == 1
    assert evaluation.internal
    assert json.loads(json.dumps(evaluation.to_dict()))["duplicate_links"]["seen"]["synthetic"] == 1
    relations, units = evaluation.relations, evaluation.units
    paths = write_relations(relations, tmp_path) + write_units(units, tmp_path)
    assert {path.name for path in paths} == {"units.png", "relations.csv", "relation_marginals.csv"}
    written = pd.read_csv(tmp_path / "relations.csv")
    assert set(written["relation"]) == {"seen.user -> users", "seen.film -> films"}


def test_a_table_that_lost_all_rows_is_no_failure() -> None:
    empty = Database(SCHEMA, {**OTHER.tables, "seen": OTHER.tables["seen"].take(slice(0))})
    for pair in ((empty, OTHER), (REAL, empty), (empty, empty)):
        evaluation = evaluate_databases(*pair, "quick", of_table)
        assert evaluation.tables["seen"].level == "none"
        assert evaluation.relations[0].units.across == ()
        assert evaluation.relations[0].queries is None
