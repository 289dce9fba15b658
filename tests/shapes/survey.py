"""A survey of few persons: many items of five answers, in groups that one trait decides."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

GROUP = 10
"""Items that one trait decides."""

ANSWERS = 5

_LOADING = 0.8
"""Correlation of an item with the trait of its group, before it is cut into answers."""


def survey(rows: int = 2_500, items: int = 150, seed: int = 1) -> Shape:
    """Items from 1 to 5, each second one agreement in words; those of a group go together."""
    rng = np.random.default_rng(seed)
    answers: dict[str, np.ndarray] = {}
    for number in range(items):
        if number % GROUP == 0:
            trait = rng.normal(size=rows)
        score = _LOADING * trait + np.sqrt(1 - _LOADING**2) * rng.normal(size=rows)
        cuts = np.quantile(score, np.cumsum(rng.dirichlet(np.full(ANSWERS, 5.0)))[:-1])
        level = np.searchsorted(cuts, score)
        answers[f"item {number:03d}"] = level + 1 if number % 2 else np.array(_WORDS)[level]
    kinds = listed(*_WORDS), whole(1, ANSWERS)
    attributes = {name: kinds[number % 2] for number, name in enumerate(answers)}
    spec = spec_of("survey", rows, attributes, method="mixture")
    return Shape(pd.DataFrame(answers), spec)


def group_of(name: str) -> int:
    """The group of an item."""
    return int(name.split()[1]) // GROUP


def scores(frame: pd.DataFrame) -> pd.DataFrame:
    """All answers as numbers."""
    return frame.apply(lambda item: pd.to_numeric(item.astype(str).replace(_NUMBERS)))


_WORDS = ("not at all", "hardly", "somewhat", "mostly", "fully")
_NUMBERS = {word: str(number) for number, word in enumerate(_WORDS, 1)}
