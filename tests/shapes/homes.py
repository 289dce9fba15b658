"""Homes and who lives there, whose sexes, ages or kinds go with each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole


def couples(number: int = 5_000, seed: int = 1) -> Shape:
    """One of each sex in a home, of nearly one age."""
    rng = np.random.default_rng(seed)
    first = rng.integers(18, 80, number)
    second = np.clip(first + rng.integers(-4, 5, number), 18, 84)
    frame = {
        "home": _names(np.repeat(np.arange(number), 2)),
        "sex": np.tile(["f", "m"], number),
        "age": np.stack([first, second], axis=1).ravel(),
    }
    return _shape(frame, {"sex": listed("f", "m"), "age": whole(0, 99)}, number, 2)


def couples_and_fives(number: int = 300) -> Shape:
    """Two or five in a home, of one age for each."""
    sizes = np.where(np.arange(number) % 2, 2, 5)
    frame = {
        "home": _names(np.repeat(np.arange(number), sizes)),
        "age": np.concatenate([np.arange(size) for size in sizes]),
    }
    return _shape(frame, {"age": whole(0, 9)}, number, 5)


def of_two_kinds(number: int = 5_000, seed: int = 1) -> Shape:
    """Up to four in a home: in 70 % of homes of two kinds in turn, else of one of three kinds."""
    rng = np.random.default_rng(seed)
    sizes, two = rng.integers(1, 5, number), rng.random(number) < 0.7
    kinds = np.argsort(rng.random((number, 3)), axis=1)
    home = np.repeat(np.arange(number), sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    frame = {
        "home": _names(home),
        "kind": np.array(list("abc"))[kinds[home, two[home] * (place % 2)]],
    }
    return _shape(frame, {"kind": listed("a", "b", "c")}, number, 4)


def differing(frame: pd.DataFrame, size: int) -> float:
    """The share of pairs of rows that differ, in homes of so many rows."""
    own = frame[frame.groupby("home")["kind"].transform("size") == size]
    pairs = own.merge(own, on="home")
    share = float((pairs["kind_x"] != pairs["kind_y"]).mean())
    return share * size / (size - 1)


def _names(homes: np.ndarray) -> list[str]:
    return [f"H{home:05d}" for home in homes]


def _shape(frame: dict, attributes: dict, homes: int, most: int) -> Shape:
    key = {"home": {"type": "text", "pattern": "H{00000..99999}"}}
    rows = pd.DataFrame(frame)
    unit = {"key": "home", "max_rows": most, "persons": {"public": homes}}
    return Shape(rows, spec_of("homes", len(rows), key | attributes, unit=unit))
