"""Links, one-to-one and a hierarchy in one release: keys hold, pairs differ, dependencies stay."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home
from cloister.tasks.release.verify import verify_records

SPEC = """
name: films
privacy: {unit: {table: users}, relation: add_remove, rows: {public: 750},
  budget: {epsilon: 60, delta: 1e-5, per: ever}}
tables:
  users:
    source: {path: users.csv}
    key: id
    references: {guide: {table: users, max_rows: 6}}
    attributes:
      id: {type: text, pattern: "U{0001..9999}"}
      guide: {type: text, pattern: "U{0001..9999}", nullable: true}
      young: {type: boolean}
  movies:
    source: {path: movies.csv}
    rows: {public: 300}
    key: id
    attributes:
      id: {type: text, pattern: "M{0001..9999}"}
      genre: {type: categorical, values: [cartoon, drama]}
  ratings:
    source: {path: ratings.csv}
    rows: {public: 2500}
    references:
      user: {table: users, max_rows: 8}
      movie: {table: movies, max_rows: 60}
    constraints: [{key: [user, movie]}]
    attributes:
      user: {type: text, pattern: "U{0001..9999}"}
      movie: {type: text, pattern: "M{0001..9999}"}
  cards:
    source: {path: cards.csv}
    rows: {public: 500}
    references: {holder: {table: users, max_rows: 1}}
    constraints: [{key: [holder]}]
    attributes:
      holder: {type: text, pattern: "U{0001..9999}"}
      colour: {type: categorical, values: [blue, red]}
release: {epsilon: 20, delta: 0, method: relational}
"""


@pytest.fixture
def films(folder: Path, prefect_server) -> Path:
    """Young users rate cartoons, have blue cards, and old ones guide them."""
    rng = np.random.default_rng(5)
    users = np.array([f"U{number:04}" for number in range(1, 751)])
    movies = np.array([f"M{number:04}" for number in range(1, 301)])
    young, cartoon = rng.random(750) < 0.5, rng.random(300) < 0.4
    guides = np.where(young & (rng.random(750) < 0.9), rng.choice(users[~young], 750), None)
    links = pd.DataFrame({"u": rng.integers(0, 750, 2500)})
    liked = np.where(rng.random(2500) < 0.9, young[links["u"]], rng.random(2500) < 0.5)
    links["m"] = np.where(
        liked, rng.choice(np.flatnonzero(cartoon), 2500), rng.choice(np.flatnonzero(~cartoon), 2500)
    )
    links = links.drop_duplicates()
    holders = rng.permutation(750)[:500]
    frames = {
        "users": {"id": users, "guide": guides, "young": young},
        "movies": {"id": movies, "genre": np.where(cartoon, "cartoon", "drama")},
        "ratings": {"user": users[links["u"]], "movie": movies[links["m"]]},
        "cards": {"holder": users[holders], "colour": np.where(young[holders], "blue", "red")},
    }
    for name, frame in frames.items():
        pd.DataFrame(frame).to_csv(folder / f"{name}.csv", index=False)
    (folder / "films.yaml").write_text(SPEC, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_links_hierarchies_and_pairs_of_rows_are_released(films, seeded_noise, capsys):
    out = films / "out"
    words = ["release", "films.yaml", "--out", str(out), "--seed-sampling", "7"]
    words += ["--evaluate", "none"]
    assert run(words) == 0, capsys.readouterr().err
    users, movies, ratings, cards = (
        pd.read_parquet(out / f"{name}.parquet") for name in ("users", "movies", "ratings", "cards")
    )
    assert (len(users), len(movies)) == (750, 300)
    assert 2000 <= len(ratings) <= 2500
    assert not ratings.duplicated().any()
    assert ratings["user"].value_counts().max() <= 8
    assert ratings["movie"].value_counts().max() <= 60
    assert set(ratings["user"]) <= set(users["id"])
    assert set(ratings["movie"]) <= set(movies["id"])
    assert cards["holder"].is_unique
    seen = ratings.merge(users, left_on="user", right_on="id").merge(
        movies, left_on="movie", right_on="id"
    )
    assert (seen["young"] == (seen["genre"] == "cartoon")).mean() > 0.8  # of the data 0.95
    held = cards.merge(users, left_on="holder", right_on="id")
    assert (held["young"] == (held["colour"] == "blue")).mean() > 0.8
    guided = users.dropna(subset=["guide"])
    assert 250 < len(guided) < 450
    above = dict(zip(guided["id"], guided["guide"], strict=True))
    assert set(above.values()) <= set(users["id"])
    assert guided["guide"].value_counts().max() <= 6
    guides = users.set_index("id").loc[guided["guide"]]
    assert guides["young"].mean() < 0.35  # of the data 0; of any rows 0.5
    assert not any(is_above_itself(user, above) for user in above)
    certificate = yaml.safe_load((out / "certificate.yaml").read_text(encoding="utf-8"))
    assert "ratings: at most 8 (1 of users x 8 each)" in certificate["guarantee"]["unit_statement"]
    assert any("A row of movies" in said for said in certificate["limitations"])
    assert all(c["violations"] == 0 for c in certificate["constraints"])
    assert verify_records(Home.current(), str(out))[1] == []


def is_above_itself(user: str, above: dict[str, str]) -> bool:
    at = above.get(user)
    while at is not None and at != user:
        at = above.get(at)
    return at == user


def test_too_many_links_of_protected_rows_on_both_sides_are_refused(films: Path, capsys) -> None:
    spec = SPEC.replace("unit: {table: users}", "unit: row").replace("max_rows: 60", "max_rows: 9")
    (films / "films.yaml").write_text(spec, encoding="utf-8")
    assert run(["release", "films.yaml"]) == 2
    assert "validation.json says what is wrong" in capsys.readouterr().err
    (report,) = (films / "home").glob("releases/*/internal/validation.json")
    assert "more than 8 rows refer to the same row of 'users'" in report.read_text(encoding="utf-8")
