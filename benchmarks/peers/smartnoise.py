"""smartnoise-synth: MST, AIM, DP-CTGAN and PATE-CTGAN.

Categories are the public codes, one-hot for the networks; left alone, it would learn them from the
rows.

Option ``drawing: sample`` has mbi draw rows independently in place of its default, rounding, whose
rows are ordered.

The networks are what the library makes of them. Both choose the categories that they train on by
counts of the real rows, without noise; PATE-CTGAN's teachers are one network, and it draws by the
real rows. DP-CTGAN sets torch's seed to 0 itself, so that its noise is the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, partialmethod
from typing import Any

import numpy as np
import pandas as pd
from mbi import MarkovRandomField
from snsynth.aim.aim import AIMSynthesizer
from snsynth.mst.mst import MSTSynthesizer
from snsynth.pytorch.nn.dpctgan import DPCTGAN
from snsynth.pytorch.nn.patectgan import PATECTGAN
from snsynth.transform import LabelTransformer, OneHotEncoder, TableTransformer

LABELS = partial(LabelTransformer, nullable=False)
# Each method's class, and how it is given a column.
SYNTHESIZERS = {
    "mst": (MSTSynthesizer, LABELS),
    "aim": (AIMSynthesizer, LABELS),
    "dpctgan": (DPCTGAN, OneHotEncoder),
    "patectgan": (PATECTGAN, OneHotEncoder),
}


def synthesize(codes: np.ndarray, sizes: Sequence[int], job: Mapping[str, Any]) -> np.ndarray:
    """Synthetic codes (job["rows"], k) like the real ``codes`` (n, k).

    Column j has the public domain 0, ..., sizes[j] - 1.
    """
    options = dict(job["options"])
    drawing = options.pop("drawing", "round")
    MarkovRandomField.synthetic_data = partialmethod(
        MarkovRandomField.synthetic_data, method=drawing
    )
    of_method, given = SYNTHESIZERS[job["method"]]
    synthesizer = of_method(epsilon=job["epsilon"], delta=job["delta"], **options)
    synthesizer.fit(_frame(codes), transformer=_public(sizes, given))
    return np.asarray(synthesizer.sample(job["rows"]))


def _frame(codes: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(codes, columns=[f"a{column}" for column in range(codes.shape[1])])


def _public(sizes: Sequence[int], given: Callable[[], Any]) -> TableTransformer:
    """A transformer that was fitted to every public code, and to nothing else."""
    transformer = TableTransformer([given() for _ in sizes])
    places = np.arange(max(sizes))
    transformer.fit(_frame(np.stack([places % size for size in sizes], axis=1)))
    return transformer
