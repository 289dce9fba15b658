"""Sales of many products: price and weight are those of the product, no two nearly alike."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

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
    attributes = {
        "product": listed(*(f"P{number:03d}" for number in range(PRODUCTS))),
        "price": {"type": "float", "min": 0, "max": 1_000, "decimals": 2, "provenance": "list"},
        "weight": whole(1, 1_000),
        "pieces": whole(1, 9),
    }
    rules = [{"name": name, "fd": f"product -> {name}"} for name in ("price", "weight")]
    return Shape(frame, spec_of("products", rows, attributes, rules))
