"""privsyn-core: PrivSyn.

Source: PrivSyn (Zhang et al., USENIX Security 2021). Codes and their domains are given; nothing is
learnt of them.

Option ``records: updated`` repairs one line of the package. It makes the starting rows twice, as a
table and as a matrix of zeros that the updates then work on, and gives out the table, which nothing
has updated: columns that are independent. Repaired, updates begin with the starting rows, and the
updated rows are given out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from privsyn import PrivSynModel
from privsyn.lib_synthesize.records_update import RecordUpdate


def synthesize(codes: np.ndarray, sizes: Sequence[int], job: Mapping[str, Any]) -> np.ndarray:
    """Synthetic codes (job["rows"], k) like the real ``codes`` (n, k).

    Column j has the public domain 0, ..., sizes[j] - 1.
    """
    options = dict(job["options"])
    if options.pop("records", "as published") == "updated":
        _repair()
    names = [f"a{column}" for column in range(len(sizes))]
    model = PrivSynModel(
        epsilon=job["epsilon"],
        delta=job["delta"],
        random_state=job["seed"],
        artifact_root=str(Path.cwd() / "artifacts"),
        extra_params=options,
    )
    model.fit(pd.DataFrame(codes, columns=names), dict(zip(names, sizes, strict=True)))
    return model.sample(job["rows"])[names].to_numpy()


def _repair() -> None:
    start = RecordUpdate.initialize_records

    def linked(self: Any, *words: Any, **named: Any) -> None:
        start(self, *words, **named)
        self.records = self.df.to_numpy(dtype=np.int64, copy=True)
        self.df = pd.DataFrame(self.records, columns=self.df.columns, copy=False)

    RecordUpdate.initialize_records = linked
