"""A small wide survey: few rows, many columns, in groups that say the same thing and alone."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

GROUP = 5
"""Columns of a group; each follows the cause of its group."""

ALONE = 0.3
"""The share of columns that follow nothing."""

LEVELS = (2, 3, 4, 6, 9)
"""Values of listed columns."""


def panel(rows: int = 2_000, columns: int = 50, seed: int = 1) -> Shape:
    """Persons asked many questions; answers of a group follow a hidden trait, others none."""
    rng = np.random.default_rng(seed)
    frame, attributes = {}, {}
    trait = rng.normal(size=rows)
    for number in range(columns):
        if number % GROUP == 0:
            trait = rng.normal(size=rows)
        strength = 0.0 if number >= (1 - ALONE) * columns else 0.5 + 0.4 * rng.random()
        answer = strength * trait + np.sqrt(1 - strength**2) * rng.normal(size=rows)
        name = f"q{number:02d}"
        if number % GROUP == GROUP - 1:
            frame[name] = np.rint(50 + 15 * answer).clip(0, 100).astype(int)
            attributes[name] = whole(0, 100)
            continue
        levels = LEVELS[number % len(LEVELS)]
        cuts = np.quantile(answer, np.sort(rng.random(levels - 1)))
        words = [f"a{level}" for level in range(levels)]
        frame[name] = np.array(words)[np.searchsorted(cuts, answer)]
        attributes[name] = listed(*words, type="ordinal")
    return Shape(pd.DataFrame(frame), spec_of("panel", rows, attributes))
