"""Insurance claims, of which at most what was claimed is paid, most often just that."""

from __future__ import annotations

import numpy as np
import pandas as pd
from shape import Shape
from specs import spec_of

PAID_WHOLE = 0.55
"""Share of settled claims of which the whole is paid."""


def claims(rows: int = 8_000, seed: int = 1) -> Shape:
    """Claims; nothing is paid of those rejected, and it is missing of those open."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["open", "settled", "rejected"], rows, p=[0.25, 0.6, 0.15])
    line = rng.choice(["car", "home", "travel"], rows, p=[0.5, 0.3, 0.2])
    usual = 6.5 + 0.5 * (line == "home") - 0.7 * (line == "travel")
    claimed = np.rint(np.exp(rng.normal(usual, 0.9, rows))).clip(1, 50_000)
    whole = rng.random(rows) < PAID_WHOLE
    paid = np.where(whole, claimed, np.floor(claimed * rng.beta(3, 1.5, rows)))
    paid = np.where(kind == "rejected", 0, paid).astype(object)
    paid[kind == "open"] = None
    frame = pd.DataFrame(
        {
            "kind": kind,
            "line": line,
            "age": rng.integers(18, 90, rows),
            "claimed": claimed.astype(int),
            "paid": paid,
            "region": rng.choice(list("ABCDE"), rows),
        }
    )
    amount = {"type": "integer", "min": 0, "max": 60_000, "provenance": "form"}
    attributes = {
        "kind": _listed("open", "settled", "rejected"),
        "line": _listed("car", "home", "travel"),
        "age": {**amount, "max": 110},
        "claimed": amount,
        "paid": {**amount, "nullable": True},
        "region": _listed(*"ABCDE"),
    }
    rule = {"name": "settling", "deny": "t.kind = 'settled' and t.paid > t.claimed"}
    return Shape(frame, spec_of("claims", rows, attributes, [rule]))


def _listed(*values: str) -> dict:
    return {"type": "categorical", "values": list(values), "provenance": "list"}
