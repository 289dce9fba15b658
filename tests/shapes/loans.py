"""A table of home-equity loans: heavy tails, missing values that tell, a rare target, few rows."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

DEFAULTED = 0.2
"""Share of loans that were not paid back."""

JOBS = ("other", "office", "professional", "manager", "self-employed", "sales")
BOUNDS = {
    "amount": 200_000, "mortgage due": 1_000_000, "property value": 2_000_000,
    "years on job": 70, "derogatory reports": 50, "delinquent lines": 50,
    "age of oldest line": 1_500, "inquiries": 50, "credit lines": 200, "debt to income": 500,
}  # fmt: skip
"""Public maxima as a careful person declares them: far above all but a few values."""

_MISSING = {
    "mortgage due": (0.085, 0.09),
    "property value": (0.005, 0.09),
    "reason": (0.04, 0.05),
    "job": (0.05, 0.03),
    "years on job": (0.09, 0.06),
    "derogatory reports": (0.13, 0.08),
    "delinquent lines": (0.10, 0.07),
    "age of oldest line": (0.05, 0.07),
    "inquiries": (0.09, 0.07),
    "credit lines": (0.04, 0.05),
}
"""Share of missing values, of loans paid back and of others."""

_CAUSES = {"undisclosed": 0.58, "in arrears": 0.28, "overloaded": 0.14}
"""Why loans are not paid back; each cause shows in columns of its own."""


def loans(rows: int = 5_960, seed: int = 1, tail: float = 1.0) -> Shape:
    """Loans, each paid back or not; ``tail`` multiplies the deviation of an amount's logarithm."""
    rng = np.random.default_rng(seed)
    bad = rng.random(rows) < DEFAULTED
    cause = np.where(bad, rng.choice(list(_CAUSES), rows, p=list(_CAUSES.values())), "")
    wealth, age = rng.normal(size=rows), rng.normal(size=rows)
    value = _amount(rng, 89_000, 0.55 * tail, 0.9 * wealth - 0.15 * bad)
    owed = value * rng.beta(6, 3, rows) * np.where(rng.random(rows) < 0.1, 0.3, 1.0)
    line = _amount(rng, 175, 0.55 * tail, 0.7 * age - 0.7 * bad)
    late = 0.14 + 0.4 * bad + 2.8 * (cause == "in arrears")
    outlier = rng.random(rows) < np.where(cause == "overloaded", 0.7, 0.001)
    ratio = rng.normal(33.5, 7, rows) + outlier * (20 + 25 * rng.pareto(2.5, rows))
    undisclosed = rng.random(rows) < np.where(cause == "undisclosed", 0.97, 0.15 * _rise(age))
    frame = pd.DataFrame(
        {
            "default": np.where(bad, "1", "0"),
            "amount": _amount(rng, 16_500, 0.8 * tail, 0.4 * wealth - 0.3 * bad).round(-2),
            "mortgage due": owed.round(),
            "property value": value.round(),
            "reason": np.where(rng.random(rows) < 0.69 - 0.06 * bad, "debts", "home"),
            "job": _jobs(rng, bad, wealth),
            "years on job": (rng.gamma(1.3, 6.9, rows) * np.where(bad, 0.88, 1.0)).round(),
            "derogatory reports": _counts(rng, 0.7 * late, 0.5),
            "delinquent lines": _counts(rng, late, 0.7),
            "age of oldest line": line.round(1),
            "inquiries": _counts(rng, 1.0 + 0.8 * bad, 1.0),
            "credit lines": rng.negative_binomial(5, 5 / (26 + 3 * age.clip(-3, 3))),
            "debt to income": np.where(undisclosed, np.nan, ratio.clip(0.5).round(1)),
        }
    )
    numbers = list(BOUNDS)
    frame[numbers] = frame[numbers].astype(float).clip(0, BOUNDS, axis=1)
    for name, (good, bad_share) in _MISSING.items():
        missing = rng.random(rows) < np.where(bad, bad_share, good)
        frame[name] = frame[name].astype(object).mask(missing, None)
    return Shape(frame, _spec(rows))


def _amount(
    rng: np.random.Generator, median: float, deviation: float, pull: np.ndarray
) -> np.ndarray:
    """Lognormal amounts, with an ordinary tail for one in fifty."""
    logs = deviation * (0.6 * rng.normal(size=len(pull)) + 0.8 * pull)
    rare = np.where(rng.random(len(pull)) < 0.02, 1 + rng.pareto(3, len(pull)), 1.0)
    return median * np.exp(logs) * rare


def _counts(rng: np.random.Generator, rates: np.ndarray, shape: float) -> np.ndarray:
    """Counts with many zeros and a long tail: Poisson with gamma rates."""
    return rng.poisson(rng.gamma(shape, rates / shape))


def _rise(numbers: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-3 * numbers))


def _jobs(rng: np.random.Generator, bad: np.ndarray, wealth: np.ndarray) -> np.ndarray:
    heights = np.array([0.40, 0.16, 0.21, 0.13, 0.06, 0.04]).cumsum()
    level = np.clip(rng.random(len(bad)) - 0.06 * bad * rng.random(len(bad)) + 0.04 * wealth, 0, 1)
    return np.array(JOBS)[np.searchsorted(heights[:-1], level)]


def _spec(rows: int) -> dict:
    kinds = {"age of oldest line", "debt to income"}
    numbers = {
        name: whole(0, most, nullable=name != "amount")
        | ({"type": "float", "decimals": 1} if name in kinds else {})
        for name, most in BOUNDS.items()
    }
    answers = {"reason": ("debts", "home"), "job": JOBS}
    words = {name: listed(*values, nullable=True) for name, values in answers.items()}
    order = list(BOUNDS)
    names = ["default", *order[:3], *words, *order[3:]]
    declared = {"default": {"type": "boolean", "true": "1", "false": "0"}} | numbers | words
    return spec_of("loans", rows, {name: declared[name] for name in names}) | {
        "evaluation": {"targets": {"default": ["1"]}}
    }
