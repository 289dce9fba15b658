"""Columns of heavy tails, declared as a careful person does: bounds far above all but a few."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import spec_of, whole


def heavy_tails(rows: int, seed: int = 7) -> Shape:
    """Lognormal, Pareto and zero-inflated amounts, counts, and two columns of light tails."""
    rng = np.random.default_rng(seed)
    zero = rng.random(rows)

    def beside(share: float, amounts: np.ndarray) -> np.ndarray:
        return np.where(zero < share, 0, amounts)

    columns = {
        "lognormal 0.5, close bound": (rng.lognormal(10, 0.5, rows), 200_000),
        "lognormal 0.5": (rng.lognormal(10, 0.5, rows), 1_000_000),
        "lognormal 1, close bound": (rng.lognormal(8, 1, rows), 200_000),
        "lognormal 1": (rng.lognormal(8, 1, rows), 1_000_000),
        "lognormal 1.5": (rng.lognormal(6, 1.5, rows), 1_000_000),
        "Pareto 2.5": (1_000 * rng.pareto(2.5, rows), 500_000),
        "Pareto 3": (1_000 * (1 + rng.pareto(3, rows)), 200_000),
        "70 % zero, lognormal 1": (beside(0.7, rng.lognormal(7, 1, rows)), 100_000),
        "90 % zero, lognormal 1": (beside(0.9, rng.lognormal(7, 1, rows)), 100_000),
        "60 % zero, Pareto 2.5": (beside(0.6, 500 * (1 + rng.pareto(2.5, rows))), 200_000),
        "92 % zero, lognormal 1.2": (beside(0.92, rng.lognormal(8.5, 1.2, rows)), 99_999),
        "counts": (rng.poisson(rng.gamma(0.5, 4, rows)), 500),
        "rare counts": (rng.poisson(rng.gamma(0.3, 1, rows)), 50),
        "normal": (rng.normal(500, 100, rows), 10_000),
        "exponential": (rng.exponential(300, rows), 10_000),
    }
    frame = pd.DataFrame(
        {
            name: np.clip(np.round(values), 0, most).astype(int)
            for name, (values, most) in columns.items()
        }
    )
    attributes = {name: whole(0, most) for name, (_, most) in columns.items()}
    return Shape(frame, spec_of("tails", rows, attributes, method="mixture"))
