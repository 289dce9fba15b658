"""The sensitive rows of a running release: in the memory of one process, until its session ends.

A session opens the rows and hands out tokens, whose types are the order of the steps::

    Session --open, validate--> Opened --charge--> Spent --fit, evaluate

``Opened`` has no door. The step ``open`` turns it into ``Spent``, which holds the ledger's entry of
the charge, and the steps that query the rows take ``Spent``: no query runs before it is paid for.

Privacy: an orchestrator gets sessions and tokens as parameters and results of steps. They are not
collections, so it cannot walk into them; ``repr`` shows the id of the release alone; copying or
pickling one is an error. Problems of unusable data are written in the home alone.
"""

from __future__ import annotations

import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, Never, Self, SupportsIndex, TypeVar

from cloister.errors import CloisterError, ColumnsError, DataError, VerificationError
from cloister.hashing import Words
from cloister.models.task import DatabaseTask
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Event
from cloister.privacy.ledger import Anchor, Release, State
from cloister.tasks.home.files import NO_SEAL, read_sealed, write_sealed
from cloister.tasks.home.home import Home
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest

RawT = TypeVar("RawT")
DoorT = TypeVar("DoorT")
_T = TypeVar("_T")


class Digests(NamedTuple):
    """Keyed digests of all that was read: for this release, and for the whole ledger.

    The second is the same for equal data. It is compared between accounts, and leaves the process
    only sealed.
    """

    data: str
    fingerprint: str


class RowSource(ABC, Generic[RawT, DoorT]):
    """The rows that a release reads, and the door in front of them."""

    @abstractmethod
    def context(self, request: ResolvedRequest) -> PublicContext:
        """What is declared of the data."""

    @abstractmethod
    def read_rows(self, release: str, request: ResolvedRequest, home: Home) -> tuple[RawT, Digests]:
        """The rows, bounded in number for each unit, and keyed digests of all that were read.

        Raises:
            StorageError: the data cannot be read.
            DataError: it is not as declared.
        """

    @abstractmethod
    def door(
        self, rows: RawT, task: DatabaseTask, planned: Event, journal: Journal, home: Home
    ) -> DoorT:
        """The rows behind a door that answers only planned queries."""


class Confidential:
    """Something that leads to sensitive rows: never copied or serialised, shown by name alone."""

    __slots__ = ("__weakref__",)

    def __repr__(self) -> str:
        """The type, and the release if there is one."""
        release = getattr(self, "release", "")
        return f"<{type(self).__name__}{' of ' if release else ''}{release}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        """Refuse to be copied or pickled."""
        raise TypeError(f"{self!r} leads to sensitive rows and is neither copied nor serialised")


class SessionValue(Confidential, Generic[_T]):
    """A value that exists until the session of a release ends."""

    __slots__ = ("_value", "release")

    def __init__(self, release: str, value: _T) -> None:
        self.release = release
        self._value: _T | None = value

    @property
    def value(self) -> _T:
        """The value.

        Raises:
            CloisterError: the session has ended.
        """
        if self._value is None:
            raise CloisterError(
                f"the session of release {self.release} has ended; rerun its command"
            )
        return self._value

    def forget(self) -> None:
        """Drop the value."""
        self._value = None


class Session(Confidential, Generic[RawT, DoorT]):
    """One run of a release: what it opens is closed and forgotten at its end, whatever happens."""

    __slots__ = ("_ending", "source")

    def __init__(self, source: RowSource[RawT, DoorT]) -> None:
        self.source = source
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.close()

    def open(self, release: str, request: ResolvedRequest, home: Home) -> Opened[RawT, DoorT]:
        """Read the rows of a release.

        Raises:
            StorageError: the data cannot be read.
            DataError: it is not as declared.
        """
        rows, digests = self.source.read_rows(release, request, home)
        return Opened(self, self.hold(release, rows), digests)

    def hold(self, release: str, value: _T) -> SessionValue[_T]:
        """Hold a value until the session ends."""
        stored = SessionValue(release, value)
        self._ending.callback(stored.forget)
        return stored

    def open_journal(self, folder: Path, fingerprint: Mapping[str, str]) -> Journal:
        """The journal in a folder, closed at the end.

        Raises:
            JournalMismatch: it belongs to other data, code, spec or parameters.
            StorageError: it cannot be written, or another process runs this release.
        """
        journal = Journal.open(folder, fingerprint)
        self._ending.callback(journal.close)
        return journal


class Opened(Confidential, Generic[RawT, DoorT]):
    """The rows of a release, read and not yet paid for; ``digests`` are of all that were read."""

    __slots__ = ("digests", "release", "rows", "session")

    def __init__(
        self, session: Session[RawT, DoorT], rows: SessionValue[RawT], digests: Digests
    ) -> None:
        self.session = session
        self.release = rows.release
        self.rows = rows
        self.digests = digests


class Spent(Confidential, Generic[RawT, DoorT]):
    """A release whose charge is final (``anchor`` in the ledger), and access to its rows."""

    __slots__ = ("_private", "_rows", "anchor", "digest", "journal", "release")

    def __init__(
        self,
        opened: Opened[RawT, DoorT],
        private: SessionValue[DoorT],
        journal: Journal,
        anchor: Anchor,
    ) -> None:
        self.release = opened.release
        self.digest = opened.digests.data
        self.anchor = anchor
        self.journal = journal
        self._private = private
        self._rows = opened.rows

    @property
    def private(self) -> DoorT:
        """The door to the rows.

        Raises:
            CloisterError: the session has ended.
        """
        return self._private.value

    @property
    def rows(self) -> RawT:
        """The rows themselves.

        Privacy: raw; only for internal measures.

        Raises:
            CloisterError: the session has ended.
        """
        return self._rows.value


AnySession = Session[Any, Any]
AnySpent = Spent[Any, Any]


class HashedRows(NamedTuple):
    """The columns of a table, and how its rows are hashed under a key: numbers of 64 bits (n,)."""

    columns: Sequence[str]
    hashes: Callable[[bytes], Words]


def keyed_digest(kind: bytes, tables: Mapping[str, HashedRows], release: str, key: bytes) -> str:
    """HMAC-SHA256 of the columns and rows of tables for one release, in hexadecimal.

    It reveals changed data. The order of rows does not matter: a database may return the same rows
    in another order, and a run that resumes a killed one reads them again.

    Privacy: certificates show it. Two releases have different digests of the same rows, so that
    nobody learns from two certificates whether a row was changed.
    """
    digest = hmac.new(key, kind + b" " + release.encode(), hashlib.sha256)
    secret = digest.digest()
    for table, (columns, hashes) in tables.items():
        for column in columns:
            digest.update(f"{table}.{column}\0".encode())
        rows = hashes(secret)
        rows.sort()
        digest.update(rows.data)
    return digest.hexdigest()


def digests_of(kind: bytes, tables: Mapping[str, HashedRows], release: str, home: Home) -> Digests:
    """The digests of what was read."""
    whole = keyed_digest(kind, tables, "", home.fingerprint_key())
    return Digests(keyed_digest(kind, tables, release, home.key()), whole)


_ResultT = TypeVar("_ResultT")

CHARGED_NOTHING = "this run charged nothing"
"""The end of each refusal of data; an earlier run of the same release may have charged it."""


def usable(opened: Callable[[], _ResultT], release: str, home: Home) -> _ResultT:
    """The result of ``opened()``.

    Raises:
        ColumnsError: the columns are not those declared; names them.
        DataError: the data cannot be used; names the file with the details, and none of them.

    Privacy: counts and row numbers are exact facts about the data, and what a step raises is sent
    to the orchestrator. Names of columns depend on no row.
    """
    try:
        return opened()
    except ColumnsError as error:
        write_validation(release, {"refused": True, "problems": [str(error)]}, home)
        raise
    except DataError as error:
        problems = str(error).splitlines()
    path = write_validation(release, {"refused": True, "problems": problems}, home)
    raise DataError(
        f"the data is not as the spec declares it; {path} says what is wrong (internal only; do "
        "not share)"
    )


def was_refused(release: str, home: Home) -> bool:
    """Whether the data of a release was opened and refused, as a killed run may have left it.

    Findings that were altered or deleted count as a refusal, which is the safe side.
    """
    path = _validation_file(release, home)
    try:
        content = read_sealed(path, home, "restore it")[0] if path.parent.exists() else {}
    except VerificationError:
        return True
    return bool(content.get("refused"))


def validation_findings(release: Release, home: Home) -> Iterator[str]:
    """What is wrong with the findings on the data of an unfinished release.

    They alone are in their folder until the charge is final, and decide nothing after it.
    Measurements write none.
    """
    path, reserved = _validation_file(release.id, home), release.state is State.RESERVED
    begun = path.parent if reserved else home.release(release.id)
    remedy = f"restore it, or run the command that began {release.id} again, which writes it anew"
    if path.exists():
        try:
            if not read_sealed(path, home, remedy)[1] and reserved:
                yield f"{path}: {NO_SEAL}, and finish the release or withdraw it"
        except VerificationError as error:
            yield str(error)
    elif begun.exists() and not release.of_domain:
        yield f"{path}: is missing; {remedy}"


def write_validation(release: str, content: dict[str, Any], home: Home) -> Path:
    """Write the findings on the data of a release, readable by their owner alone; internal."""
    return write_sealed(_validation_file(release, home), content, home)


def _validation_file(release: str, home: Home) -> Path:
    return home.release(release) / "internal" / "validation.json"
