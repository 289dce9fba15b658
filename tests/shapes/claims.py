"""Insurance claims, of which at most what was claimed is paid, most often just that."""

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

PAID_WHOLE = 0.55
"""Share of settled claims of which the whole is paid."""


def claims(rows: int = 8_000, seed: int = 1) -> Shape:
    """Claims; nothing is paid of those rejected, and it is missing of those open."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["open", "settled", "rejected"], rows, p=[0.25, 0.6, 0.15])
    line = rng.choice(["car", "home", "travel"], rows, p=[0.5, 0.3, 0.2])
    usual = 6.5 + 0.5 * (line == "home") - 0.7 * (line == "travel")
    claimed = np.rint(np.exp(rng.normal(usual, 0.9, rows))).clip(1, 50_000)
    fully = rng.random(rows) < PAID_WHOLE
    paid = np.where(fully, claimed, np.floor(claimed * rng.beta(3, 1.5, rows)))
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
    attributes = {
        "kind": listed("open", "settled", "rejected"),
        "line": listed("car", "home", "travel"),
        "age": whole(0, 110),
        "claimed": whole(0, 60_000),
        "paid": whole(0, 60_000, nullable=True),
        "region": listed(*"ABCDE"),
    }
    rule = {"name": "settling", "deny": "t.kind = 'settled' and t.paid > t.claimed"}
    return Shape(frame, spec_of("claims", rows, attributes, [rule]))
