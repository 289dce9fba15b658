"""The raw columns of a measurement while it runs: opened once, held in memory by this process alone, never written."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cloister.errors import CloisterError, DataError
from cloister.privacy.discovery import DomainPlan
from cloister.privacy.journal import Journal
from cloister.privacy.private_columns import PrivateColumns
from cloister.privacy.randomness import NoiseSource
from cloister.schema.parsing import parse
from cloister.schema.reading import read_frame
from cloister.schema.spec import PersonUnit, Spec
from tasks.home import Home
from tasks.orders import Order
from tasks.units import kept, persons


@dataclass(frozen=True)
class Door:
    """The one way to the columns, and the journal of its answers."""

    private: PrivateColumns
    journal: Journal


_opened: dict[str, pd.DataFrame] = {}
_doors: dict[str, Door] = {}


def open_columns(release: str, order: Order, spec: Spec, home: Home) -> str:
    """Read the rows of a measurement and bound those of each person; a keyed digest of all that were read.

    Raises:
        StorageError: the data cannot be read.
        DataError: it has other columns than declared, or rows that belong to no person.
    """
    frame, key = read_frame(spec, order.data), home.key()
    unit = spec.privacy.unit
    _opened[release] = bounded(frame, unit, spec, key) if isinstance(unit, PersonUnit) else frame
    return keyed_digest(frame, release, key)


def open_door(release: str, plan: DomainPlan, fingerprint: dict[str, str], home: Home) -> Journal:
    """Put the columns of a measurement behind the door, with the journal of an earlier run if there is one.

    Raises:
        JournalMismatch: the journal belongs to other data, code, spec or parameters.
        StorageError: the journal cannot be written, or another process runs this measurement.
    """
    journal = Journal.open(home.journal(release), fingerprint)
    private = PrivateColumns(_opened[release], home.key(), plan.neighbours, plan.event, journal, NoiseSource())
    _doors[release] = Door(private, journal)
    return journal


def door(release: str) -> Door:
    """The door of a measurement that is running."""
    if release not in _doors:
        raise CloisterError(f"the door of release {release} is not open in this process; run its command again")
    return _doors[release]


@contextmanager
def forgetting(release: str) -> Iterator[None]:
    """Close the journal and forget the columns of a measurement at the end, whatever happens."""
    try:
        yield
    finally:
        if release in _doors:
            _doors.pop(release).journal.close()
        _opened.pop(release, None)


def bounded(frame: pd.DataFrame, unit: PersonUnit, spec: Spec, key: bytes) -> pd.DataFrame:
    """The rows of a frame with at most ``unit.max_rows`` of each person, in the order they had.

    Raises:
        DataError: a row has no person.
    """
    typed, _ = parse(frame[unit.key], spec.attributes[unit.key])
    if typed.isna().any():
        raise DataError(f"column '{unit.key}' identifies persons but lacks values; give every row one")
    return frame.iloc[np.sort(kept(persons(typed, key), unit.max_rows, key))]


def keyed_digest(frame: pd.DataFrame, release: str, key: bytes) -> str:
    """HMAC-SHA256 over a 64-bit hash of each cell for one release, in hexadecimal: it tells changed data."""
    digest = hmac.new(key, b"columns " + release.encode(), hashlib.sha256)
    for name in frame.columns:
        digest.update(
            str(name).encode() + b"\0" + pd.util.hash_pandas_object(frame[name], index=False).to_numpy().tobytes()
        )
    return digest.hexdigest()
