"""A questionnaire: tens of answers of all kinds, which a few traits of a person decide."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

GROUP = 6
"""Questions that one trait decides."""
OPTIONS = 5


def questionnaire(rows: int = 5_000, questions: int = 60, seed: int = 1) -> Shape:
    """Answers of the kinds yes or no, one of five, whole number, and amount, in turn."""
    rng = np.random.default_rng(seed)
    answers: dict[str, np.ndarray] = {}
    attributes: dict[str, dict[str, object]] = {}
    for number in range(questions):
        if number % GROUP == 0:
            trait = rng.random(rows)
        level = (trait + rng.random(rows)) / 2
        name, kind = f"q{number:02d}", number % 4
        values = (
            np.where(level < 1 / 2, "no", "yes"),
            np.array([f"option {option}" for option in range(OPTIONS)])[
                (level * OPTIONS).astype(int)
            ],
            (level * 100).astype(int),
            np.round(-50 * np.log1p(-level), 1),
        )
        answers[name] = values[kind]
        attributes[name] = _DECLARED[kind]
    spec = spec_of("questionnaire", rows, attributes, method="mixture", delta="1e-7")
    return Shape(pd.DataFrame(answers), spec)


_DECLARED: tuple[dict[str, object], ...] = (
    listed("no", "yes"),
    listed(*(f"option {option}" for option in range(OPTIONS))),
    whole(0, 99),
    {"type": "float", "min": 0, "max": 2000, "decimals": 1, "provenance": "the form"},
)
