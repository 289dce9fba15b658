"""The rows of blocks of growing data, each by its own date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from cloister.arrays import Booleans
from cloister.schema.blocks import LETTERS
from cloister.schema.parsing import parse
from cloister.schema.sources.batches import SourceBatch, SourceCells
from cloister.schema.spec import Spec


def rows_in_blocks(batches: Iterable[SourceBatch], spec: Spec) -> Iterator[SourceBatch]:
    """The rows of a spec's blocks, and those without a readable date, which are in no block.

    Privacy: row by row. Rows without a readable date are left for validation, which leaves them
        out, or refuses them where ``on_invalid`` is ``fail``: the column is not nullable.
    """
    assert spec.privacy.block is not None
    column, letters = spec.privacy.block.column, LETTERS[spec.privacy.block.per]
    for batch in batches:
        cells = batch.cells[column]
        typed, _ = parse(cells.distinct().reset_index(drop=True), spec.attributes[column])
        names = _days(typed).str[:letters]
        stays = (names.isna() | names.isin(spec.blocks)).to_numpy(dtype=bool)[cells.places]
        yield batch if stays.all() else _taken(batch, stays)


def _days(typed: pd.Series) -> pd.Series:
    """The days of dates or moments as texts, as ``2026-10-31``; missing where these are."""
    texts = np.datetime_as_string(typed.to_numpy().astype("datetime64[D]"))
    return pd.Series(texts, dtype="string").mask(typed.isna().to_numpy(dtype=bool))


def _taken(batch: SourceBatch, stays: Booleans) -> SourceBatch:
    cells = {
        name: SourceCells(held.stored, held.places[stays], held.read)
        for name, held in batch.cells.items()
    }
    return SourceBatch(cells, batch.malformed)
