"""Staff of whom some have left: columns that are missing exactly where another one says so."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

STATUS = {"active": 0.62, "left": 0.27, "retired": 0.11}


def leavers(rows: int = 6_000, seed: int = 1) -> Shape:
    """Eight years of staff; whoever has left has a date of leaving, and a reason if not retired."""
    rng = np.random.default_rng(seed)
    status = rng.choice(list(STATUS), rows, p=list(STATUS.values()))
    joined = np.datetime64("2015-01-01") + rng.integers(0, 2_000, rows)
    years = np.where(status == "retired", 900, 300) * rng.gamma(2.0, 0.5, rows)
    gone = joined + np.floor(years).astype(int).clip(0, 1_500)
    parked = rng.choice(["yes", "no", None], rows, p=[0.35, 0.55, 0.10])
    frame = pd.DataFrame(
        {
            "status": status,
            "joined": joined,
            "gone": np.where(status == "active", np.datetime64("NaT"), gone),
            "reason": np.where(
                status == "left", rng.choice(["own", "pay", "move"], rows, p=[0.5, 0.3, 0.2]), None
            ),
            "pay": np.rint(rng.lognormal(8.0, 0.4, rows)).clip(0, 19_999).astype(int),
            "car": parked,
            "place": np.where(
                parked == "yes", np.rint(rng.gamma(2.0, 40.0, rows)).clip(0, 400), np.nan
            ),
        }
    )
    date = {"type": "date", "min": "2015-01-01", "max": "2024-12-31", "provenance": "calendar"}
    attributes = {
        "status": listed(*STATUS),
        "joined": date,
        "gone": {**date, "nullable": True},
        "reason": listed("own", "pay", "move", nullable=True),
        "pay": whole(0, 20_000),
        "car": listed("yes", "no", nullable=True),
        "place": whole(0, 400, nullable=True),
    }
    rules = [
        {"name": "gone", "check": "t.gone is missing exactly if t.status = 'active'"},
        {"name": "order", "deny": "t.joined > t.gone"},
        {"name": "reason", "check": "t.reason is not missing exactly if t.status = 'left'"},
        {"name": "place", "check": "t.place is not missing exactly if t.car = 'yes'"},
    ]
    spec = spec_of("leavers", rows, attributes, rules)
    return Shape(frame.astype({"gone": "datetime64[s]"}), spec)
