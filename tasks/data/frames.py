"""Frames that a program passes: a private file while they are needed, since flows read files."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from pandas.api import types as pt

from cloister.errors import DataError
from cloister.tasks.runtime.home import Home, private_folder
from cloister.tasks.runtime.tables import write_parquet


@contextmanager
def kept_frame(frame: pd.DataFrame, home: Home) -> Iterator[Path]:
    """A file of a frame in the private home, gone afterwards.

    Its name is a keyed digest of what the frame holds: the same frame has the same name again, so
    that a release that was killed is resumed.

    Raises:
        DataError: the names of the columns are not texts.
        StorageError: the file cannot be written.
    """
    if not all(isinstance(name, str) for name in frame.columns):
        raise DataError("the columns of the frame should be named by texts; rename them")
    plain = frame.apply(_storable).reset_index(drop=True)
    path = private_folder(home.folder / "frames") / f"{_digest(plain, home.key())}.parquet"
    write_parquet(plain, path)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _storable(column: pd.Series) -> pd.Series:
    """A column as Parquet holds it: objects as their texts, cell by cell."""
    if not pt.is_object_dtype(column.dtype):
        return column
    return column.map(str, na_action="ignore").astype("string")


def _digest(frame: pd.DataFrame, key: bytes) -> str:
    digest = hmac.new(key, b"frame", hashlib.sha256)
    for name in frame.columns:
        hashes = pd.util.hash_pandas_object(frame[name].astype("string"), index=False)
        digest.update(f"{name}\0{frame[name].dtype}\0".encode() + hashes.to_numpy().tobytes())
    return digest.hexdigest()
