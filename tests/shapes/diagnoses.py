"""A table of hospital stays with a long list of codes: 1,350 in 18 chapters, few of them common."""

from string import ascii_uppercase

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

CHAPTERS, CODES = 18, 1_350

WARDS = ("medicine", "surgery", "heart", "children", "nerves", "other")
_LISTED = {
    "sex": ("f", "m"),
    "ward": WARDS,
    "admitted by": ("doctor", "emergency", "transfer", "other"),
    "discharged": ("home", "home care", "other hospital", "died"),
    "payer": ("public", "private", "none"),
    "insulin": ("no", "steady", "up", "down"),
    "readmitted": ("no", "early", "late"),
}
_NUMBERS = {"age": 110, "days": 60, "tests": 150, "drugs": 80, "earlier stays": 40}


def diagnoses(rows: int = 5_000, seed: int = 1, skew: float = 0.8, used: float = 0.4) -> Shape:
    """Stays, each with a code of a chapter that most other attributes depend on.

    Of a chapter's codes a share ``used`` occurs at all. Their shares of rows fall with the power
    ``skew`` of their ranks, which are at random in the order of the codes.
    """
    rng = np.random.default_rng(seed)
    sizes = _sizes(rng)
    codes = [f"{ascii_uppercase[c]}{n:03d}" for c in range(CHAPTERS) for n in range(sizes[c])]
    chapter = rng.choice(CHAPTERS, rows, p=rng.dirichlet(np.full(CHAPTERS, 1.5)))
    ranks = [rng.permutation(size) for size in sizes]
    member = np.array([_drawn(rng, ranks[c], skew, used) for c in chapter])
    code = np.concatenate([[0], np.cumsum(sizes)[:-1]])[chapter] + member
    frame = pd.DataFrame({"code": [codes[index] for index in code]})
    risk = rng.normal(0, 1, CHAPTERS)[chapter] + 0.7 * rng.normal(0, 1, CODES)[code]
    for name, values in _LISTED.items():
        frame[name] = _answers(rng, values, chapter, risk)
    for name, most in _NUMBERS.items():
        scores = rng.normal(0, 0.8, CHAPTERS)[chapter] + 0.5 * risk + rng.normal(0, 1, rows)
        frame[name] = np.clip(np.rint(most / 8 * np.exp(0.5 * scores)), 0, most).astype(int)
    declared = {name: listed(*values) for name, values in _LISTED.items()}
    numbers = {name: whole(0, most) for name, most in _NUMBERS.items()}
    attributes = {"code": listed(*codes, hierarchy=[1]), **declared, **numbers}
    return Shape(frame, spec_of("diagnoses", rows, attributes))


def _sizes(rng: np.random.Generator) -> np.ndarray:
    """Codes of each chapter: 20 at least, about 75."""
    more = rng.multinomial(CODES - 20 * CHAPTERS, rng.dirichlet(np.full(CHAPTERS, 3.0)))
    return 20 + more


def _drawn(rng: np.random.Generator, ranks: np.ndarray, skew: float, used: float) -> int:
    weights = (1.0 + ranks) ** -skew * (ranks < used * len(ranks))
    return int(np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random()))


def _answers(
    rng: np.random.Generator, values: tuple[str, ...], chapter: np.ndarray, risk: np.ndarray
) -> list[str]:
    logits = rng.normal(0, 1.2, (CHAPTERS, len(values)))[chapter]
    logits += 0.5 * np.outer(risk, rng.normal(0, 1, len(values)))
    return [values[index] for index in (logits + rng.gumbel(size=logits.shape)).argmax(1)]
