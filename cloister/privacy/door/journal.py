"""The journal: every noisy answer of a run, on disk before the algorithm sees it.

A run makes the same queries in the same order each time. Answer n is read back if the journal
holds it and drawn if it does not, so a run resumes a killed one with the answers that it had, and
nothing is drawn (or charged) twice.

A file can be copied, and an older copy restored. So each run begins with a frame that holds a fresh
random number, and a ``Guard`` (a lease of the ledger) is checked before each draw and records each
answer before it is returned: of two copies of a journal, the ledger accepts only the one that holds
all recorded answers.

Frames are appended and never changed; see `journal_format` for the bytes.
Each frame is fsynced before its answer is returned; each answer's has random digits, so that the
digests that a ledger records reveal nothing of it. A tail that was never completed is cut off on
opening: its answer was never seen. Any other difference is damage, and the journal is refused.

Privacy: the file holds noisy answers, digests of requests and the fingerprint; no value of the
    data. Mode 0600.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from cloister.arrays import Array
from cloister.errors import JournalMismatch, StorageError
from cloister.figures import count_of
from cloister.privacy.door import journal_format
from cloister.privacy.ledger.records import JournalState, Mark

_ARRAY_KINDS = "biuf"


class Guard(Protocol):
    """Who may draw the answers of a journal."""

    def require(self) -> None:
        """Check, before a draw, that this process may draw; raises if not."""
        ...

    def record(self, position: int, digest: str) -> None:
        """Record how many answers are on disk, and the digest up to there.

        Raises if this process lost its right to draw.
        """
        ...

    def close(self) -> None:
        """Give up the right to draw."""
        ...


class _Unguarded:
    """The guard of a journal that no ledger knows: anyone may draw."""

    def require(self) -> None:
        """Nothing."""

    def record(self, position: int, digest: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Journal:
    """The noisy answers of one run, in order; one process at a time.

    ``id`` is drawn once, when the file is made: a ledger that records it can distinguish this
    journal from a new one. ``position`` counts the answers given so far by this process,
    ``recorded`` those the file holds.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._file = descriptor
        self._frames: list[journal_format.Frame] = []
        self._answers: list[journal_format.Frame] = []
        self._guard: Guard = _Unguarded()
        self.position = 0

    @classmethod
    def open(cls, folder: Path | str, fingerprint: Mapping[str, str]) -> Self:
        """The journal in ``folder``, made if there is none.

        ``fingerprint`` says whose it is (data, code, spec, ...).

        Errors: ``JournalMismatch`` for another run's journal or a damaged one; ``StorageError`` if
        it cannot be read or written, or another process has it open.
        """
        path = Path(folder) / journal_format.JOURNAL_NAME
        journal = cls(path, _open_locked(path))
        try:
            journal._load()
            journal._begin(dict(fingerprint))
        except BaseException:
            journal.close()
            raise
        return journal

    @property
    def id(self) -> str:
        """32 hexadecimal digits, drawn when the file was made."""
        return str(self._frames[0].meta["id"])

    @property
    def recorded(self) -> int:
        """Number of answers in the file."""
        return len(self._answers)

    @property
    def sealed(self) -> bool:
        """Whether the journal is finished: no answer can be added."""
        return self._frames[-1].kind == journal_format.LAST

    @property
    def digest(self) -> str:
        """SHA-256 over the whole journal, hexadecimal."""
        return self._frames[-1].seal.hex()

    @property
    def drawn_by(self) -> dict[str, int]:
        """How many answers each version of the code drew, in the order of their first answers."""
        version, drawn = self._first_version, Counter[str]()
        for frame in self._frames:
            version = (
                frame.meta.get("code", version) if frame.kind == journal_format.RUN else version
            )
            drawn[version] += frame.kind == journal_format.ANSWER
        return {version: answers for version, answers in drawn.items() if answers}

    def begin_run(self, code: str = "") -> JournalState:
        """Write that a run begins, with a fresh random number; a sealed journal is left as it is.

        ``code`` is the version of the code that runs; by default that of the fingerprint.

        Raises:
            StorageError: it cannot be written.
        """
        nonce = "" if self.sealed else secrets.token_hex(16)
        if nonce:
            self._append(
                journal_format.RUN, {"nonce": nonce, "code": code or self._first_version}, b""
            )
        digests = frozenset(frame.seal.hex() for frame in self._frames)
        return JournalState(Mark(self.recorded, self.digest, nonce), self.sealed, digests)

    def guard(self, guard: Guard) -> None:
        """Set the guard: checked before each draw, given each answer, closed with the journal."""
        self._guard = guard

    def answer(self, request: Mapping[str, Any], draw: Callable[[], Array]) -> Array:
        """The answer at this position of the run: read back, or drawn, written and fsynced.

        ``request`` is the query as JSON values (public; only its digest is stored). ``draw``
        returns an array of booleans, integers or floats, of any shape. Errors: ``JournalMismatch``
        if the journal holds the answer to another request here, or is sealed, or another process
        took over the release; ``StorageError`` if the answer cannot be written, and then the
        journal is closed, or if the guard cannot record it. No answer is returned then.
        """
        digest = hashlib.sha256(journal_format.canonical_json(request)).hexdigest()
        answer = (
            self._replay(digest) if self.position < self.recorded else self._record(digest, draw)
        )
        self.position += 1
        return answer

    def seal(self) -> Mark:
        """Seal the journal, to which nothing is added then; returns the mark where it ends.

        Errors: ``JournalMismatch`` if this process has not read every recorded answer.
        """
        if self.position != self.recorded:
            raise JournalMismatch(
                f"{self._path} holds more answers than this run needed: start a new release."
            )
        if not self.sealed:
            self._append(journal_format.LAST, {}, b"")
            self._guard.record(self.recorded, self.digest)
        return Mark(self.recorded, self.digest)

    def close(self) -> None:
        """Close the guard and the file, and release its lock."""
        try:
            self._guard.close()
        finally:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _first_version(self) -> str:
        return str(self._frames[0].meta["fingerprint"].get("code", ""))

    def _replay(self, digest: str) -> Array:
        frame = self._answers[self.position]
        if frame.meta["request"] != digest:
            raise JournalMismatch(
                f"{self._path} holds the answer to another request at position {self.position}: "
                "the data, code, spec or parameters changed. Its answers were drawn by version "
                f"{' and '.join(self.drawn_by)}: finish the release by the last of these, or "
                "withdraw it and start a new one at a new charge."
            )
        return journal_format.decode_array(
            frame, self._read(frame.payload.start, frame.payload.stop)
        )

    def _record(self, digest: str, draw: Callable[[], Array]) -> Array:
        if self.sealed:
            raise JournalMismatch(
                f"{self._path} is finished and holds {count_of(self.recorded, 'answer')}: start a "
                "new release."
            )
        self._guard.require()
        answer = np.array(draw(), order="C")
        if answer.dtype.kind not in _ARRAY_KINDS:
            raise TypeError("a journal holds arrays of booleans, integers or floats")
        meta = {"request": digest, "dtype": answer.dtype.str, "shape": list(answer.shape)}
        meta["blinding"] = secrets.token_hex(16)
        self._append(journal_format.ANSWER, meta, answer.tobytes())
        self._guard.record(self.recorded, self.digest)
        return answer

    def _load(self) -> None:
        size = os.fstat(self._file).st_size
        end = min(size, len(journal_format.MAGIC))
        if self._read(0, end) != journal_format.MAGIC[:end]:
            raise JournalMismatch(f"{self._path} is not a journal: move it away.")
        try:
            while end < size:
                self._add(self._next_frame(end))
                end = self._frames[-1].end
        except journal_format.TornFrame:
            os.ftruncate(self._file, end)
            os.fsync(self._file)

    def _add(self, frame: journal_format.Frame) -> None:
        self._frames.append(frame)
        if frame.kind == journal_format.ANSWER:
            self._answers.append(frame)

    def _next_frame(self, start: int) -> journal_format.Frame:
        frame = journal_format.parse_frame(self._read, start, self._last_seal)
        misplaced = bool(self._frames) and self.sealed
        if frame is None or misplaced or (frame.kind == journal_format.FIRST) != (not self._frames):
            raise JournalMismatch(
                f"{self._path} is damaged at byte {start}: its answers cannot be used; withdraw "
                "the release and start a new one."
            )
        return frame

    @property
    def _last_seal(self) -> bytes:
        return self._frames[-1].seal if self._frames else journal_format.FIRST_SEAL

    def _begin(self, fingerprint: dict[str, str]) -> None:
        if not self._frames:
            self._append(
                journal_format.FIRST, {"id": secrets.token_hex(16), "fingerprint": fingerprint}, b""
            )
        recorded = self._frames[0].meta["fingerprint"]
        differing = sorted(
            key
            for key in recorded.keys() | fingerprint
            if recorded.get(key) != fingerprint.get(key)
        )
        if differing:
            raise JournalMismatch(
                f"{self._path} belongs to another run ({', '.join(differing)} differ): "
                "start a new release."
            )

    def _append(self, kind: bytes, meta: dict[str, Any], payload: bytes) -> None:
        start = self._frames[-1].end if self._frames else 0
        lead = b"" if self._frames else journal_format.MAGIC
        frame = journal_format.encode_frame(kind, meta, payload, self._last_seal)
        self._write(start, lead + frame)
        end = start + len(lead) + len(frame)
        where = slice(
            end - journal_format.SEAL_BYTES - len(payload), end - journal_format.SEAL_BYTES
        )
        self._add(
            journal_format.Frame(kind, meta, start, end, frame[-journal_format.SEAL_BYTES :], where)
        )

    def _write(self, start: int, content: bytes) -> None:
        """Write and fsync; a partial write is undone, and the journal closed."""
        if self._file < 0:
            raise StorageError(f"{self._path} was closed: open it again.")
        try:
            _write_all(self._file, start, content)
            os.fsync(self._file)
        except OSError as error:
            self._undo(start)
            raise _storage_error(self._path, "written", error) from error

    def _read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``, fewer where the file ends."""
        chunks, position = [], start
        try:
            while position < stop and (chunk := os.pread(self._file, stop - position, position)):
                chunks.append(chunk)
                position += len(chunk)
        except OSError as error:
            raise _storage_error(self._path, "read", error) from error
        return b"".join(chunks)

    def _undo(self, start: int) -> None:
        try:
            os.ftruncate(self._file, start)
        except OSError:
            pass  # the tail stays torn, and is cut off at the next opening
        finally:
            self.close()


def _open_locked(path: Path) -> int:
    try:
        _make_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        _sync_folder(path.parent)
    except OSError as error:
        raise _storage_error(path, "opened", error) from error
    try:
        os.fchmod(descriptor, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StorageError(
            f"{path} is in use by another process: wait for that run to end."
        ) from error
    return descriptor


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, start: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, start)
        start, rest = start + written, rest[written:]


def _storage_error(path: Path, verb: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path} cannot be {verb} ({os.strerror(error.errno or 0)}): make room or correct the path."
    )
