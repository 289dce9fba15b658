"""Sales of many products: price and weight are those of the product, no two nearly alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
from shape import Shape

PRODUCTS = 300


def products(rows: int = 20_000, seed: int = 0) -> Shape:
    """Sales of products that differ much in frequency; prices have a heavy tail."""
    rng = np.random.default_rng(seed)
    price = np.round(rng.lognormal(3, 1, PRODUCTS), 2).clip(0, 1_000)
    weight = rng.integers(1, 1_000, PRODUCTS)
    sold = rng.choice(PRODUCTS, rows, p=rng.dirichlet(np.ones(PRODUCTS)))
    frame = pd.DataFrame(
        {
            "product": [f"P{number:03d}" for number in sold],
            "price": price[sold],
            "weight": weight[sold],
            "pieces": rng.poisson(1, rows).clip(0, 8) + 1,
        }
    )
    return Shape(frame, _spec(rows))


def _spec(rows: int) -> dict:
    return {
        "name": "products",
        "source": {"path": "products.csv"},
        "privacy": {
            "unit": "row",
            "relation": "add_remove",
            "rows": {"public": rows},
            "budget": {"epsilon": 100, "delta": 1e-4, "per": "year"},
        },
        "attributes": {
            "product": {
                "type": "categorical",
                "values": [f"P{number:03d}" for number in range(PRODUCTS)],
                "provenance": "catalogue",
            },
            "price": {"type": "float", "min": 0, "max": 1_000, "decimals": 2, "provenance": "list"},
            "weight": {"type": "integer", "min": 1, "max": 1_000, "provenance": "list"},
            "pieces": {"type": "integer", "min": 1, "max": 9, "provenance": "form"},
        },
        "constraints": [
            {"name": "price", "fd": "product -> price"},
            {"name": "weight", "fd": "product -> weight"},
        ],
        "release": {"method": "auto", "epsilon": 1, "delta": 1e-6},
    }
