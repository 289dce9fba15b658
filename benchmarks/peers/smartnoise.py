"""smartnoise-synth: MST and AIM.

Categories are the public codes; left alone, it would learn them from the rows.

Option ``drawing: sample`` has mbi draw rows independently in place of its default, rounding, whose
rows are ordered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partialmethod
from typing import Any

import numpy as np
import pandas as pd
from mbi import MarkovRandomField
from snsynth.aim.aim import AIMSynthesizer
from snsynth.mst.mst import MSTSynthesizer
from snsynth.transform import LabelTransformer, TableTransformer

SYNTHESIZERS = {"mst": MSTSynthesizer, "aim": AIMSynthesizer}


def synthesize(codes: np.ndarray, sizes: Sequence[int], job: Mapping[str, Any]) -> np.ndarray:
    """Synthetic codes (job["rows"], k) like the real ``codes`` (n, k).

    Column j has the public domain 0, ..., sizes[j] - 1.
    """
    options = dict(job["options"])
    drawing = options.pop("drawing", "round")
    MarkovRandomField.synthetic_data = partialmethod(
        MarkovRandomField.synthetic_data, method=drawing
    )
    synthesizer = SYNTHESIZERS[job["method"]](epsilon=job["epsilon"], delta=job["delta"], **options)
    synthesizer.fit(_frame(codes), transformer=_public(sizes))
    return np.asarray(synthesizer.sample(job["rows"]))


def _frame(codes: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(codes, columns=[f"a{column}" for column in range(codes.shape[1])])


def _public(sizes: Sequence[int]) -> TableTransformer:
    """A transformer that was fitted to every public code, and to nothing else."""
    transformer = TableTransformer([LabelTransformer(nullable=False) for _ in sizes])
    places = np.arange(max(sizes))
    transformer.fit(_frame(np.stack([places % size for size in sizes], axis=1)))
    return transformer
