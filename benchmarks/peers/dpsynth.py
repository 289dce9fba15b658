"""dpsynth (google/dpsynth): AIM-GDP and SWIFT, by its tabular interface.

It has no package: the variable ``CLOISTER_DPSYNTH`` names a checkout, which needs Python 3.12.
Codes are categories of attributes, whose domains are public. Options are those of the mechanism.

Source: docs/mechanism_api.md of the checkout. Written from it, not run: no checkout was at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dpsynth
import numpy as np
import pandas as pd

MECHANISMS = {
    "aim-gdp": dpsynth.discrete_mechanisms.AIMGDPConfig,
    "swift": dpsynth.discrete_mechanisms.SWIFTConfig,
}


def synthesize(codes: np.ndarray, sizes: Sequence[int], job: Mapping[str, Any]) -> np.ndarray:
    """Synthetic codes (job["rows"], k) like the real ``codes`` (n, k).

    Column j has the public domain 0, ..., sizes[j] - 1. It makes about as many rows as it counted
    with noise: these are drawn from, or repeated, until there are job["rows"].
    """
    names = [f"a{column}" for column in range(len(sizes))]
    categories = [[str(code) for code in range(size)] for size in sizes]
    attributes = [dpsynth.CategoricalAttribute(categories=listed) for listed in categories]
    recipe = dpsynth.TabularConfig(discrete_mechanism=MECHANISMS[job["method"]](**job["options"]))
    mechanism = recipe.calibrate(
        dpsynth.Schema(dict(zip(names, attributes, strict=True))),
        epsilon=job["epsilon"],
        delta=job["delta"],
    )
    real = pd.DataFrame(codes, columns=names).astype(str)
    made = mechanism(np.random.default_rng(job["seed"]), real).synthetic_data
    drawn = made.sample(job["rows"], replace=len(made) < job["rows"], random_state=job["seed"])
    return drawn[names].astype(np.int64).to_numpy()
