"""Figures of docs/benchmarks/units.md: households and those who live in them."""

import os
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pandas as pd
import pytest
from homes import couples, differing, of_two_kinds
from shape import DatabaseShape, release_database, release_once
from specs import listed, spec_of_tables

from cloister.privacy.mechanisms.randomness import NoiseSource

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(14_400)]

DATA = Path(__file__).resolve().parents[2] / os.environ.get("CLOISTER_DATA", "../shared/data")
HOMES = ("SUBREG", "HHSize", "HHIncome", "HHDwelling", "HHChildren")
PEOPLE = ("PAge", "PGender", "PEmp", "POcc", "PComm")
MOST = 10
FEW = 0.002  # households without persons: the data has none, which noise does not know
KEY = {"type": "text", "pattern": "H{000001..999999}"}

Home = tuple[pd.DataFrame, pd.DataFrame]


@pytest.fixture(scope="module")
def real() -> Home:
    """The households and persons of a survey, at most ten of a household."""
    folder = DATA / "households"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    homes, people = (
        pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        for name in ("households", "persons")
    )
    return homes, people[people.groupby("hhID").cumcount() < MOST]


def as_shape(real: Home) -> DatabaseShape:
    """The two tables, with the values that occur as those that are declared."""
    homes, people = real
    attributes = [
        {"hhID": KEY, **{name: listed(*sorted(frame[name].unique())) for name in names}}
        for frame, names in ((homes, HOMES), (people, PEOPLE))
    ]
    reference = {"hhID": {"table": "households", "max_rows": MOST}}
    tables = {
        "households": {"rows": len(homes), "key": "hhID", "attributes": attributes[0]},
        "persons": {"rows": len(people), "references": reference, "attributes": attributes[1]},
    }
    frames = {"households": homes, "persons": people}
    return DatabaseShape(frames, spec_of_tables("homes", "households", tables))


def distance(one: pd.DataFrame, two: pd.DataFrame) -> float:
    """Half the L1 distance between the joint tables of all columns."""
    shares = (
        pd.Series(map(tuple, each.astype(str).to_numpy())).value_counts(normalize=True)
        for each in (one, two)
    )
    first, second = shares
    return float(first.sub(second, fill_value=0).abs().sum() / 2)


def mean_distance(one: pd.DataFrame, two: pd.DataFrame, sets: Sequence[Sequence[str]]) -> float:
    return mean(distance(one[[*names]], two[[*names]]) for names in sets)


def siblings(people: pd.DataFrame) -> pd.DataFrame:
    """Ordered pairs of different persons of a household; the second one's columns end in _2."""
    numbered = people.assign(number=np.arange(len(people)))
    pairs = numbered.merge(numbered, on="hhID", suffixes=("", "_2"))
    return pairs[pairs["number"] != pairs["number_2"]]


def sizes(homes: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
    counts = people.groupby("hhID").size().reindex(homes["hhID"], fill_value=0)
    return counts.to_frame("persons")


def of_two_sexes(people: pd.DataFrame) -> float:
    """The share of households of two persons in which these are of two sexes."""
    sexes = people.groupby("hhID")["PGender"].agg(["size", "nunique"])
    return float((sexes.loc[sexes["size"] == 2, "nunique"] == 2).mean())


def errors(real: Home, drawn: Home) -> dict[str, float]:
    people = real[1], drawn[1]
    joined = [rows.merge(homes, on="hhID") for homes, rows in (real, drawn)]
    pairs = [siblings(rows) for rows in people]
    return {
        "1-way, persons": mean_distance(*people, [[name] for name in PEOPLE]),
        "2-way, persons": mean_distance(*people, [*combinations(PEOPLE, 2)]),
        "across, 2": mean_distance(*joined, [*product(HOMES, PEOPLE)]),
        "siblings": mean_distance(*pairs, [(name, f"{name}_2") for name in PEOPLE]),
        "sizes": distance(sizes(*real), sizes(*drawn)),
        "empty": float((sizes(*drawn)["persons"] == 0).mean()),
        "two sexes": of_two_sexes(drawn[1]),
    }


def of_frames(tables: dict[str, pd.DataFrame]) -> Home:
    return tables["households"], tables["persons"]


def line(name: str, figures: Sequence[dict[str, float]]) -> list[str]:
    """The mean of each figure, and its deviation where there are several."""
    texts = []
    for figure in figures[0]:
        values = [each[figure] for each in figures]
        spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
        texts.append(f"{mean(values):.4f}{spread}")
    return [name, str(len(figures)), *texts]


def released(shape: DatabaseShape, epsilon: float, releases: int) -> Iterator[Home]:
    for _ in range(releases):
        trial = release_database(shape, epsilon, noise=NoiseSource())
        yield of_frames({name: table.frame() for name, table in trial.synthetic.tables.items()})


def test_households(real, record) -> None:
    rng = np.random.default_rng(0)
    half = rng.random(len(real[0])) < 0.5
    names = [real[0]["hhID"][side] for side in (half, ~half)]
    halves = [tuple(frame[frame["hhID"].isin(some)] for frame in real) for some in names]
    mixed = real[0], real[1].assign(hhID=rng.permutation(real[1]["hhID"]))
    lines = [
        line("halves of the data", [errors(*halves)]),
        line("the data, linked at random", [errors(real, mixed)]),
    ]
    shape = as_shape(real)
    for epsilon, releases in ((1, 3), (3.2, 3)):
        figures = [errors(real, drawn) for drawn in released(shape, epsilon, releases)]
        lines.append(line(f"epsilon {epsilon}", figures))
        assert all(each["empty"] < FEW for each in figures)
    record("units-households", "Households", ["", "releases", *figures[0]], lines)


def test_rows_that_go_together(record) -> None:
    homes, kinds = couples(), of_two_kinds()
    lines = []
    for _ in range(3):
        drawn = release_once(homes, 10, noise=NoiseSource()).synthetic.frame()
        sexes = drawn.groupby("home")["sex"].nunique()
        mixed = release_once(kinds, 10, noise=NoiseSource()).frames
        gaps = [abs(differing(mixed[1], size) - differing(mixed[0], size)) for size in (2, 3, 4)]
        assert (sexes == 2).mean() > 0.97
        lines.append([f"{(sexes == 2).mean():.4f}", *(f"{gap:.4f}" for gap in gaps)])
    headings = ["couples of two sexes (all in the data)"]
    headings += [f"pairs that differ, homes of {size}, off by" for size in (2, 3, 4)]
    record("units-homes", "Homes made up, epsilon 10, one release a line", headings, lines)
