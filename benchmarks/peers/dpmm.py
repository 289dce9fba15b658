"""dpmm: MST, AIM and PrivBayes.

Its own binning, which would learn from the rows, is switched off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline

PIPELINES = {"mst": MSTPipeline, "aim": AIMPipeline, "privbayes": PrivBayesPipeline}


def synthesize(codes: np.ndarray, sizes: Sequence[int], job: Mapping[str, Any]) -> np.ndarray:
    """Synthetic codes (job["rows"], k) like the real ``codes`` (n, k).

    Column j has the public domain 0, ..., sizes[j] - 1.
    """
    names = [f"a{column}" for column in range(len(sizes))]
    pipeline = PIPELINES[job["method"]](
        epsilon=job["epsilon"],
        delta=job["delta"],
        n_jobs=1,
        disable_processing=True,
        gen_kwargs=job["options"],
    )
    domain = dict(zip(names, sizes, strict=True))
    pipeline.fit(pd.DataFrame(codes, columns=names), domain=domain, random_state=job["seed"])
    return pipeline.generate(n_records=job["rows"], random_state=job["seed"])[names].to_numpy()
