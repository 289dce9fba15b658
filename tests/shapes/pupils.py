"""Pupils and their marks, of which those of one are alike: as two tables, or as one of persons."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from shape import DatabaseShape, Shape
from specs import listed, spec_of, spec_of_tables, whole

_OF_PUPIL = 0.7
"""Part of the variance of a mark that is its pupil's."""

_FAVOURITE = 0.6
"""Share of marks that are in the pupil's subject, beside those that chance on it."""

_MOST = 20
"""Marks of a pupil at most."""


def pupils(number: int = 900, marks: float = 4, seed: int = 1) -> DatabaseShape:
    """Two marks of a pupil correlate at 0.65; half of them are in one subject, a quarter by chance.

    A mark goes with a score of more digits.
    """
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(number), np.minimum(rng.poisson(marks, number), _MOST))
    ability = np.sqrt(_OF_PUPIL) * rng.normal(size=number)[owner]
    ability += np.sqrt(1 - _OF_PUPIL) * rng.normal(size=len(owner))
    favourite = rng.integers(0, 4, number)[owner]
    subject = np.where(
        rng.random(len(owner)) < _FAVOURITE, favourite, rng.integers(0, 4, len(owner))
    )
    frames = {
        "pupils": {
            "id": _names(np.arange(number)),
            "sex": rng.choice(["f", "m"], number),
            "born": 2000 + rng.integers(0, 8, number),
        },
        "marks": {
            "pupil": _names(owner),
            "mark": np.rint(3.5 + 1.2 * ability).clip(1, 6).astype(int),
            "subject": np.array(list("ABCD"))[subject],
            "score": (50 + 15 * ability + rng.normal(0, 5, len(owner))).round(1).clip(0, 100),
        },
    }
    tables = {name: pd.DataFrame(columns) for name, columns in frames.items()}
    return DatabaseShape(tables, _spec(number, len(owner)))


def marks_of_persons(number: int = 900, most: int = 5, seed: int = 1) -> Shape:
    """The marks alone; up to ``most`` of a pupil, who is the privacy unit."""
    whole = pupils(number, seed=seed)
    marks = whole.frames["marks"]
    unit = {"key": "pupil", "max_rows": most, "persons": {"public": number}}
    attributes = whole.spec["tables"]["marks"]["attributes"]
    return Shape(marks, spec_of("marks", len(marks), attributes, unit=unit))


def alike(marks: pd.DataFrame) -> Mapping[str, float]:
    """How alike two random rows of a pupil are: correlations, and the share in one subject."""
    two = marks.sample(frac=1, random_state=0).groupby("pupil").head(2)
    pairs = (
        two.assign(row=two.groupby("pupil").cumcount()).pivot(index="pupil", columns="row").dropna()
    )
    found = {
        name: float(np.corrcoef(pairs[name].astype(float).to_numpy().T)[0, 1])
        for name in ("mark", "score")
    }
    return found | {"one subject": float((pairs["subject"][0] == pairs["subject"][1]).mean())}


def _names(numbers: np.ndarray) -> list[str]:
    return [f"P{number:05d}" for number in numbers]


def _spec(number: int, rows: int) -> dict:
    key = {"type": "text", "pattern": "P{00000..99999}"}
    score = {"type": "float", "min": 0, "max": 100, "decimals": 1, "provenance": "form"}
    born, mark, subject = whole(2000, 2007), whole(1, 6), listed(*"ABCD")
    persons = {"id": key, "sex": listed("f", "m"), "born": born}
    marks = {"pupil": key, "mark": mark, "subject": subject, "score": score}
    references = {"pupil": {"table": "pupils", "max_rows": _MOST}}
    return spec_of_tables(
        "school",
        "pupils",
        {
            "pupils": {"rows": number, "key": "id", "attributes": persons},
            "marks": {"rows": rows, "references": references, "attributes": marks},
        },
    )
