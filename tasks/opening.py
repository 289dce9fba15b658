"""The data of a release while it runs: opened once, held in memory by this process alone, never written.

Tasks refer to it by the id of the release. It is forgotten when the release ends.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from cloister.privacy.journal import Journal
from cloister.privacy.private import PrivateTable
from cloister.privacy.randomness import NoiseSource
from cloister.schema.domain import Table
from cloister.schema.parsing import parse
from cloister.schema.reading import read_frame
from cloister.schema.spec import PersonUnit
from cloister.schema.validation import ValidationReport, validate
from models.protocol import Plan
from tasks.doors import Doors
from tasks.home import Home
from tasks.orders import Order, World
from tasks.units import bounded


@dataclass(frozen=True)
class Opened:
    """The rows of a release, and a keyed digest of all that were read."""

    table: Table
    digest: str


_doors: Doors[Opened, PrivateTable] = Doors()
door, forgetting = _doors.door, _doors.forgetting


def open_data(release: str, order: Order, world: World, home: Home) -> tuple[Opened, ValidationReport]:
    """Read, validate, encode and bound the rows of a release.

    Raises:
        StorageError: the data cannot be read.
        DataError: it is not as declared; names columns, rules and row numbers.
    """
    frame, report = validate(read_frame(world.spec, order.data), world.spec)
    table = world.task.domain.encode(frame)
    digest = keyed_digest(table, release, home.key())
    unit = world.spec.privacy.unit
    if isinstance(unit, PersonUnit):
        table = bounded(table, parse(frame[unit.key], world.spec.attributes[unit.key])[0], unit, home.key())
    opened = Opened(table, digest)
    _doors.hold(release, opened)
    return opened, report


def real_table(release: str) -> Table:
    """The rows of a release that is running.

    Privacy: raw rows; for a measure that is kept inside.
    """
    return _doors.rows(release).table


def open_door(release: str, plan: Plan, world: World, fingerprint: dict[str, str], home: Home) -> Journal:
    """Put the rows of a release behind the door, with the journal of an earlier run if there is one.

    Raises:
        JournalMismatch: the journal belongs to other data, code, spec or parameters.
        StorageError: the journal cannot be written, or another process runs this release.
    """
    journal = Journal.open(home.journal(release), fingerprint)
    private = PrivateTable(real_table(release), world.task.neighbours, plan.event, journal, noise_source())
    _doors.open(release, private, journal)
    return journal


def noise_source() -> NoiseSource:
    """The source of all noise of releases: fresh entropy of the operating system."""
    return NoiseSource()


def keyed_digest(table: Table, release: str, key: bytes) -> str:
    """HMAC-SHA256 of all columns and rows of a table for one release, in hexadecimal.

    Privacy: certificates show it. Two releases have different digests of the same rows, so that none tells from two
    certificates whether a row was changed.
    """
    digest = hmac.new(key, b"data " + release.encode(), hashlib.sha256)
    for name in table.domain.names:
        digest.update(name.encode() + b"\0" + table.codes[name].tobytes())
    return digest.hexdigest()
