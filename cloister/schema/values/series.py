"""Values of columns as pandas holds them: what `cloister.schema.columns` needs once there are rows.

That module imports this one where it meets a series, so that public domains can be used without
pandas and pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.arrays import Integers
from cloister.schema.attributes import Scalar


def label_index(labels: Sequence[str]) -> pd.Index:
    """An index that finds the positions of labels."""
    return pd.Index(np.array(labels, dtype=object))


def positions_of(typed: pd.Series, index: pd.Index) -> Integers:
    """The positions (n,) of values, as text, in an index of labels; -1 where it has none."""
    texts = pd.Index(typed.astype(str).astype(object))
    return index.get_indexer(texts).astype(np.int64)


def listed_values(listed: Sequence[Scalar], dtype: str, positions: Integers) -> pd.Series:
    """The values (n,) at positions (n,) of a list."""
    return pd.Series(list(listed), dtype=dtype).take(positions).reset_index(drop=True)


def typed_values(values: np.ndarray, dtype: str) -> pd.Series:
    """An array (n,) as a series."""
    return pd.Series(values, dtype=dtype)


def numbered_texts(prefix: str, numbers: Integers, width: int, suffix: str) -> pd.Series:
    """Texts (n,) of a numbered pattern; numbers are padded with zeros to ``width`` digits."""
    return prefix + pd.Series(numbers).astype(str).str.zfill(width) + suffix


def numbers_in(texts: pd.Series, prefix: str, suffix: str, otherwise: int) -> Integers:
    """The numbers (n,) between prefix and suffix, of at most 18 digits, as a code has."""
    pattern = f"^{re.escape(prefix)}(?P<number>0*[0-9]{{1,18}}){re.escape(suffix)}$"
    array: Any = pa.array(texts.astype("str"), type=pa.large_string())
    digits = pc.struct_field(pc.extract_regex(array, pattern), "number")
    numbers: Integers = pc.fill_null(pc.cast(digits, pa.int64()), otherwise).to_numpy(
        zero_copy_only=False
    )
    return numbers


def hash_texts(texts: pd.Series, bits: int) -> Integers:
    """Hashes (n,) of so many bits that depend on each text alone."""
    hashes = pd.util.hash_array(texts.to_numpy(dtype=object))
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


def zoned_dtype(name: str) -> str | None:
    """The name of a pandas dtype of moments in a time zone; None of any other text."""
    try:
        kind = pd.api.types.pandas_dtype(name)
    except TypeError:
        return None
    return str(kind) if isinstance(kind, pd.DatetimeTZDtype) else None


def in_zone(moments: pd.Series, dtype: str) -> pd.Series:
    """Moments (n,) in UTC as a column of a dtype that may name a time zone."""
    if zoned_dtype(dtype) is None:
        return moments.astype(dtype)  # type: ignore[call-overload]
    return moments.dt.tz_localize("UTC").astype(dtype)


def in_categories(values: pd.Series, listed: Sequence[Scalar], ordered: bool) -> pd.Series:
    """Listed values (n,) as pandas categories: all of the list, in its order."""
    return values.astype(pd.CategoricalDtype(list(listed), ordered=ordered))
