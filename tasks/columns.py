"""The raw columns of a measurement while it runs: opened once, held in memory by this process alone, never written."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pandas as pd

from cloister.errors import DataError
from cloister.privacy.discovery import DomainPlan
from cloister.privacy.journal import Journal
from cloister.privacy.private_columns import PrivateColumns
from cloister.privacy.randomness import NoiseSource
from cloister.schema.parsing import parse
from cloister.schema.reading import read_frame
from cloister.schema.spec import PersonUnit, Spec
from tasks.doors import Doors
from tasks.home import Home
from tasks.orders import Order
from tasks.units import kept, persons

_doors: Doors[pd.DataFrame, PrivateColumns] = Doors()
door, forgetting = _doors.door, _doors.forgetting


def open_columns(release: str, order: Order, spec: Spec, home: Home) -> str:
    """Read the rows of a measurement and bound those of each person; a keyed digest of all that were read.

    Raises:
        StorageError: the data cannot be read.
        DataError: it has other columns than declared, or rows that belong to no person.
    """
    frame, key = read_frame(spec, order.data), home.key()
    unit = spec.privacy.unit
    _doors.hold(release, bounded(frame, unit, spec, key) if isinstance(unit, PersonUnit) else frame)
    return keyed_digest(frame, release, key)


def open_door(release: str, plan: DomainPlan, fingerprint: dict[str, str], home: Home) -> Journal:
    """Put the columns of a measurement behind the door, with the journal of an earlier run if there is one.

    Raises:
        JournalMismatch: the journal belongs to other data, code, spec or parameters.
        StorageError: the journal cannot be written, or another process runs this measurement.
    """
    journal = Journal.open(home.journal(release), fingerprint)
    private = PrivateColumns(_doors.rows(release), home.key(), plan.neighbours, plan.event, journal, NoiseSource())
    _doors.open(release, private, journal)
    return journal


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
