"""privsyn-core: PrivSyn.

Source: PrivSyn (Zhang et al., USENIX Security 2021). Codes and their domains are given; nothing is
learnt of them.

Option ``rows: repaired`` mends where the package loses its rows, and nothing else:

- It makes the starting rows twice, as a table and as a matrix of zeros; updates work on the matrix,
  and the table is given out. Repaired, both are the same rows.
- Columns are appended to rows in the order of these, and a copy of the rows is shuffled in between:
  columns appended to the same one come out dependent. Repaired, the rows themselves are shuffled.
- Where the chosen marginals are a forest, every column is appended to another one, from rows of
  zeros: the first column of each tree has one value. Repaired, it begins with the starting rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from privsyn import PrivSynModel
from privsyn.lib_synthesize import GUM as gum  # noqa: N811
from privsyn.lib_synthesize.converge_imp import ClipLayer
from privsyn.lib_synthesize.records_update import RecordUpdate


def synthesize(codes: np.ndarray, sizes: Sequence[int], job: Mapping[str, Any]) -> np.ndarray:
    """Synthetic codes (job["rows"], k) like the real ``codes`` (n, k).

    Column j has the public domain 0, ..., sizes[j] - 1.
    """
    options = dict(job["options"])
    if options.pop("rows", "published") == "repaired":
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
    start, append = RecordUpdate.initialize_records, gum.append_attrs
    synthesize_records = gum.GUM_Mechanism.synthesize_records

    def linked(self: Any, *words: Any, **named: Any) -> None:
        start(self, *words, **named)
        self.records = self.df.to_numpy(dtype=np.int64, copy=True)
        self.df = pd.DataFrame(self.records, columns=self.df.columns, copy=False)

    def begun(self: Any, rows: int) -> None:
        synthesize_records(self, rows)
        if not self.iterate_keys:
            marginals = {names[0]: marginal for names, marginal in self.one_way_marg_dict.items()}
            made = RecordUpdate(self.original_dataset.domain, rows)
            made.initialize_records((), self.args["initialize_method"], marginals)
            self.synthesized_df = made.df

    def appended(
        logger: Any, domain: Any, layers: Sequence[ClipLayer], table: pd.DataFrame, marginals: Any
    ) -> None:
        for layer in layers[::-1]:
            for name in sorted(layer.attrs):
                one = ClipLayer()
                one.attrs, one.attrs_ancestor = {name}, layer.attrs_ancestor
                one.attrs_marginal = layer.attrs_marginal
                append(logger, domain, [one], table, marginals)
                table[:] = table.sample(frac=1).to_numpy()

    RecordUpdate.initialize_records = linked
    gum.append_attrs = appended
    gum.GUM_Mechanism.synthesize_records = begun
