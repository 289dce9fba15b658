"""Orders that are shipped and delivered days later, or not yet: a chain of dates, some missing."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

STATUS = {"delivered": 0.74, "shipped": 0.08, "open": 0.06, "cancelled": 0.07, "returned": 0.05}
SENT, ARRIVED = ("delivered", "shipped", "returned"), ("delivered", "returned")


def deliveries(rows: int = 8_000, seed: int = 1) -> Shape:
    """Two years of orders; what follows from the rules on neighbours is declared as well."""
    rng = np.random.default_rng(seed)
    status = rng.choice(list(STATUS), rows, p=list(STATUS.values()))
    ordered = np.datetime64("2022-01-01") + rng.integers(0, 700, rows)
    shipped = ordered + rng.poisson(2, rows)
    delivered = shipped + 1 + rng.poisson(3, rows)
    never = np.datetime64("NaT")
    frame = pd.DataFrame(
        {
            "status": status,
            "ordered": ordered,
            "shipped": np.where(np.isin(status, SENT), shipped, never),
            "delivered": np.where(np.isin(status, ARRIVED), delivered, never),
            "pieces": rng.geometric(0.4, rows).clip(1, 20),
        }
    )
    days = dict.fromkeys(("ordered", "shipped", "delivered"), "datetime64[s]")
    date = {"type": "date", "min": "2022-01-01", "max": "2024-01-31", "provenance": "calendar"}
    attributes = {
        "status": listed(*STATUS),
        "ordered": date,
        "shipped": {**date, "nullable": True},
        "delivered": {**date, "nullable": True},
        "pieces": whole(1, 20),
    }
    sent = "t.shipped is missing exactly if t.status = 'open' or t.status = 'cancelled'"
    arrived = (
        "t.delivered is not missing exactly if t.status = 'delivered' or t.status = 'returned'"
    )
    rules = [
        {"name": "sending", "deny": "t.ordered > t.shipped"},
        {"name": "arriving", "deny": "t.shipped >= t.delivered"},
        {"name": "whole", "deny": "t.ordered > t.delivered"},
        {"name": "sent", "check": sent},
        {"name": "arrived", "check": arrived},
    ]
    return Shape(frame.astype(days), spec_of("deliveries", rows, attributes, rules))
