"""The algorithm as printed, by the command line: links of two small tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run

SPEC = """
name: films
privacy: {unit: row, relation: replace_one, rows: {public: 150},
  budget: {epsilon: 100, delta: 1e-4, per: ever}}
tables:
  users:
    source: {path: users.csv}
    key: id
    attributes: {id: {type: text, pattern: "U{001..999}"}, young: {type: boolean}}
  movies:
    source: {path: movies.csv}
    rows: {public: 60}
    key: id
    attributes: {id: {type: text, pattern: "M{001..999}"}, drama: {type: boolean}}
  ratings:
    source: {path: ratings.csv}
    rows: {public: 300}
    references: {user: {table: users, max_rows: 4}, movie: {table: movies, max_rows: 20}}
    constraints: [{key: [user, movie]}]
    attributes:
      user: {type: text, pattern: "U{001..999}"}
      movie: {type: text, pattern: "M{001..999}"}
release:
  method: relational-paper
  epsilon: 60
  delta: 1e-5
  options: {table_method: independent, epsilon: 30, rounds: 1, workloads: 1, fitted: 1}
"""


@pytest.fixture
def films(folder: Path, prefect_server) -> Path:
    """A user of an even number rates two movies of even numbers, others two of odd ones."""
    users = np.array([f"U{number:03}" for number in range(1, 151)])
    movies = np.array([f"M{number:03}" for number in range(1, 61)])
    user = np.repeat(np.arange(150), 2)
    movie = (user % 2) + 2 * ((user // 2 + np.arange(300) % 2) % 30)
    frames = {
        "users": {"id": users, "young": np.arange(150) % 2 == 0},
        "movies": {"id": movies, "drama": np.arange(60) % 2 == 0},
        "ratings": {"user": users[user], "movie": movies[movie]},
    }
    for name, frame in frames.items():
        pd.DataFrame(frame).to_csv(folder / f"{name}.csv", index=False)
    (folder / "films.yaml").write_text(SPEC, encoding="utf-8")
    return folder


def test_the_paper_releases_as_many_links_as_declared(films: Path, seeded_noise, capsys) -> None:
    out = films / "out"
    words = ["release", "films.yaml", "--out", str(out), "--seed-sampling", "7"]
    words += ["--evaluate", "none"]
    assert run(words) == 0, capsys.readouterr().err
    users, movies, ratings = (
        pd.read_parquet(out / f"{name}.parquet") for name in ("users", "movies", "ratings")
    )
    assert (len(ratings), ratings.duplicated().sum()) == (300, 0)
    seen = ratings.merge(users, left_on="user", right_on="id").merge(
        movies, left_on="movie", right_on="id"
    )
    assert (seen["young"] == seen["drama"]).mean() > 0.8
    certificate = yaml.safe_load((out / "certificate.yaml").read_text(encoding="utf-8"))
    assert any("degrees are not bounded" in said for said in certificate["post_processing"])
    assert certificate["guarantee"]["unit"].startswith("one row of any table")


def test_what_is_too_large_is_refused_before_a_charge(films: Path, capsys) -> None:
    large = SPEC.replace("rows: {public: 60}", "rows: {public: 900000}")
    (films / "films.yaml").write_text(large.replace("M{001..999}", "M{000001..999999}"))
    assert run(["release", "films.yaml"]) == 2
    assert "each of 135,000,000 pairs of rows" in capsys.readouterr().err
    assert not (films / "home" / "ledger.db").exists()
