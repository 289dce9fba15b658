"""Sales of clerks of branches: 1 to 500 rows a branch, which are alike within a branch.

A branch has a region and a size; its rows have a product, of which each branch sells some more than
others do, a clerk's shift, which mostly one branch has, and an amount, higher in some branches.
"""

import numpy as np
import pandas as pd
from shape import Shape

REGIONS = ["north", "south", "east", "west"]
PRODUCTS = [f"product {number}" for number in range(12)]
SHIFTS = ["early", "late", "night"]
CODES = 100_000  # that a branch could have


def branches(number: int = 400, largest: int = 500, seed: int = 1) -> Shape:
    """So many branches, the largest with at most so many rows."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(1 + rng.exponential(largest / 10, number).astype(int), largest)
    branch = np.repeat(np.arange(number), sizes)
    region = rng.choice(len(REGIONS), number, p=[0.4, 0.3, 0.2, 0.1])
    popular = np.array([rng.dirichlet(np.full(len(PRODUCTS), 0.4)) for _ in range(number)])
    product = [rng.choice(len(PRODUCTS), p=popular[each]) for each in branch]
    usual = rng.choice(len(SHIFTS), number)
    shift = np.where(rng.random(len(branch)) < 0.8, usual[branch], rng.choice(3, len(branch)))
    level = rng.normal(0, 0.6, number)[branch] + 0.3 * (region[branch] == 0)
    amount = np.clip(np.rint(np.exp(4 + level + rng.normal(0, 0.5, len(branch)))), 1, 1_000)
    order = rng.permutation(len(branch))
    keys = rng.choice(CODES, number, replace=False)
    frame = pd.DataFrame(
        {
            "branch": [f"b{keys[each]:05}" for each in branch],
            "region": np.array(REGIONS)[region[branch]],
            "product": np.array(PRODUCTS)[product],
            "shift": np.array(SHIFTS)[shift],
            "amount": amount.astype(int),
        }
    ).iloc[order]
    return Shape(frame.reset_index(drop=True), spec_of(len(frame)))


def spec_of(rows: int) -> dict:
    return {
        "name": "branches",
        "source": {"path": "branches.csv"},
        "privacy": {
            "unit": "row",
            "relation": "add_remove",
            "rows": {"public": rows},
            "budget": {"epsilon": 10, "delta": "1e-5", "per": "year"},
        },
        "attributes": {
            "branch": {
                "type": "categorical",
                "values": {"pattern": f"b{{00000..{CODES - 1}}}"},
                "provenance": "the register's format",
            },
            "region": {"type": "categorical", "values": REGIONS, "provenance": "public list"},
            "product": {"type": "categorical", "values": PRODUCTS, "provenance": "price list"},
            "shift": {"type": "categorical", "values": SHIFTS, "provenance": "rota"},
            "amount": {"type": "integer", "min": 1, "max": 1000, "provenance": "largest bill"},
        },
        "constraints": [{"name": "branch-region", "fd": "branch -> region"}],
        "release": {"method": "auto", "epsilon": 1, "delta": "1e-6"},
    }
