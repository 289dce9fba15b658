"""Checkpoints: the books after an entry, signed, so that only the entries after it are read.

A home keeps one beside its ledger, in a file, and believes it if its own key signed it, this code
wrote it, and the ledger holds that entry: since an entry names the hash of the one before, those
are then the books of all entries up to it. Otherwise all entries are read. `verify` always reads
them all, and compares.

A checkpoint is of one home: others that share its ledger would have to trust its key with all that
the entries before say, and each can make its own.

Its values are compact JSON, written and read by the types of their fields. A dataclass is the list
of its fields' values, in their order: a field that is added needs nothing here. Nothing is checked
when it is read: its reader knows who wrote it, and by which code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from sqlalchemy import Connection

from cloister.errors import CloisterError, StorageError, VerificationError
from cloister.files import write_whole
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.checks import require_sound
from cloister.privacy.ledger.entries import Anchor, Entry, Finding
from cloister.privacy.ledger.house import Deletion
from cloister.privacy.ledger.records import Release
from cloister.privacy.ledger.store import Store
from cloister.privacy.signing import PublicKey, Signer, pae

V = TypeVar("V")

dump = json.JSONEncoder(separators=(",", ":")).encode
load = json.JSONDecoder().decode


class Shared:
    """Maps that many values hold, as the releases of one plan hold its events: each by a number."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """``texts`` are those of numbers from 0 on."""
        self.texts = {text: number for number, text in enumerate(texts)}
        self._read = list(self.texts)
        self._values: dict[int, Any] = {}

    def number(self, value: Mapping[str, Any]) -> int:
        """The number of a map."""
        return self.texts.setdefault(dump(value), len(self.texts))

    def value(self, number: int) -> Any:
        """The map of a number: one object for all that hold it."""
        if number not in self._values:
            self._values[number] = load(self._read[number])
        return self._values[number]


class Lazy(MutableMapping[str, V], Generic[V]):
    """Values of a type by name, in their order, each read from its text when it is asked for.

    ``texts`` holds None in place of the text of a value that was set since.
    """

    def __init__(self, kind: type[V], texts: Mapping[str, str], shared: Shared) -> None:
        """The texts are of what `packed` gave."""
        self.texts: dict[str, str | None] = dict(texts)
        self.shared, self._kind = shared, kind
        self._values: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._values:
            text = self.texts[name]
            assert text is not None
            self._values[name] = unpacked(self._kind, load(text), self.shared)
        return self._values[name]

    def __setitem__(self, name: str, value: V) -> None:
        self.texts[name], self._values[name] = None, value

    def __delitem__(self, name: str) -> None:
        del self.texts[name]
        self._values.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


def packed(kind: Any, value: Any, shared: Shared) -> Any:
    """A value of a type as JSON holds it."""
    return _codec(kind)[0](value, shared)


def unpacked(kind: Any, value: Any, shared: Shared) -> Any:
    """The value of a type that `packed` gave."""
    return _codec(kind)[1](value, shared)


_Convert = Callable[[Any, Shared], Any]
_Codec = tuple[_Convert, _Convert]


@cache
def _codec(kind: Any) -> _Codec:
    """What writes the values of a type, and what reads them."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if is_dataclass(origin):
        return _dataclass(origin)
    if arguments == (str, Any):
        return lambda value, shared: shared.number(value), lambda value, shared: shared.value(value)
    return _of_several(origin, arguments) if arguments else _simple(origin)


def _simple(kind: Any) -> _Codec:
    if kind is Fraction:
        return lambda value, _: value.as_integer_ratio(), lambda value, _: Fraction(*value)
    if kind is bytes:
        return lambda value, _: value.hex(), lambda value, _: bytes.fromhex(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = {member.value: member for member in kind}
        return _same, lambda value, _: members[value]
    return _same, _same


def _of_several(kind: Any, arguments: tuple[Any, ...]) -> _Codec:
    if kind in (Union, UnionType):
        return _optional(_codec(arguments[0]))
    if kind in (list, set) or arguments[1:] == (...,):
        return _collection(kind, _codec(arguments[0]))
    if kind is tuple:
        return _tuple([_codec(argument) for argument in arguments])
    if arguments == (str, str):
        return lambda value, _: dict(value), _same
    return _mapping(_tuple([_codec(argument) for argument in arguments]))


def _same(value: Any, _: Shared) -> Any:
    return value


def _dataclass(kind: Any) -> _Codec:
    hints = get_type_hints(kind, localns={"Deletion": Deletion})
    names = [part.name for part in fields(kind)]
    codecs = [_codec(hints[name]) for name in names]
    converted = [
        (position, part[1]) for position, part in enumerate(codecs) if part[1] is not _same
    ]

    def write(value: Any, shared: Shared) -> list[Any]:
        pairs = zip(names, codecs, strict=True)
        return [codec[0](getattr(value, name), shared) for name, codec in pairs]

    def read(values: list[Any], shared: Shared) -> Any:
        for position, convert in converted:
            values[position] = convert(values[position], shared)
        instance = object.__new__(kind)
        instance.__dict__.update(zip(names, values, strict=True))
        return instance

    return write, read


def _optional(codec: _Codec) -> _Codec:
    return (
        lambda value, shared: None if value is None else codec[0](value, shared),
        lambda value, shared: None if value is None else codec[1](value, shared),
    )


def _collection(kind: Any, codec: _Codec) -> _Codec:
    write, read = codec
    return (
        lambda value, shared: [write(item, shared) for item in value],
        lambda value, shared: kind([read(item, shared) for item in value]),
    )


def _tuple(codecs: Sequence[_Codec]) -> _Codec:
    def converted(side: int) -> _Convert:
        return lambda value, shared: tuple(
            codec[side](item, shared) for codec, item in zip(codecs, value, strict=True)
        )

    return converted(0), converted(1)


def _mapping(pair: _Codec) -> _Codec:
    """Keys need not be text: a map is the list of its pairs."""
    return (
        lambda value, shared: [pair[0](item, shared) for item in value.items()],
        lambda value, shared: dict(pair[1](item, shared) for item in value),
    )


INTERVAL = 250
"""Entries after a checkpoint until the next is written. Each that lies after it costs each command
some 0.1 ms; writing one takes some 0.1 s of a ledger of 10,000 releases, a third of what the 250
entries took to write."""

_TYPE = "application/vnd.cloister.ledger-checkpoint+json"
"""The type of what is signed, which nothing else has."""


@dataclass(frozen=True)
class Checkpoint:
    """The books after an entry."""

    entry: Anchor
    books: LedgerState


@dataclass(frozen=True)
class CheckpointFile:
    """Where a home keeps its checkpoint; ``key`` is that of the home, by which it is believed."""

    path: Path
    key: Callable[[], PublicKey | None]

    def read(self) -> Checkpoint | None:
        """The checkpoint; None if there is none, or other code wrote it.

        Raises:
            VerificationError: it is not as this home wrote it.
            StorageError: it cannot be read.
        """
        try:
            head, _, body = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self.path} cannot be read: correct its permissions.") from error
        try:
            header = load(head.decode("ascii"))
            signature, digest = bytes.fromhex(header.pop("signature")), header["digest"]
            entry, code = Anchor(header["seq"], header["hash"]), header["code"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise VerificationError("was altered") from None
        key = self.key()
        if key is None or not key.verify(signature, _message(header)):
            raise VerificationError("is not signed by the key of this home")
        if hashlib.sha256(body).hexdigest() != digest:
            raise VerificationError("was altered")
        return Checkpoint(entry, _books(body)) if code == _code() else None

    def write(self, entry: Anchor, books: LedgerState, signer: Signer) -> None:
        """Write the checkpoint of an entry in place of the one before.

        The one before stays if this one cannot be written: it is as true.
        """
        body = _body(books)
        digest = hashlib.sha256(body).hexdigest()
        header = {"code": _code(), "digest": digest, "hash": entry.hash, "seq": entry.seq}
        signed = header | {"signature": signer.sign(_message(header)).hex()}
        with suppress(OSError):
            text = dump(signed).encode() + b"\n" + body
            write_whole(self.path, lambda part: part.write_bytes(text))


@dataclass(frozen=True)
class LedgerSnapshot:
    """The books of a ledger, and its last entry, None of an empty one.

    ``since`` is the number of the entry whose checkpoint was believed; 0 if none was.
    """

    books: LedgerState
    last: Entry | None
    since: int

    @classmethod
    def read(
        cls, store: Store, connection: Connection, checkpoints: CheckpointFile | None
    ) -> LedgerSnapshot:
        """The state that a transaction sees.

        Errors: ``VerificationError`` if the chain is broken, or no ledger could have written it.
        """
        known = None
        with suppress(CloisterError):  # one that is not believed is named by `verify`
            known = checkpoints.read() if checkpoints else None
        rows = store.rows(connection, known.entry.seq) if known else []
        if known and rows and (rows[0].seq, rows[0].hash) == (known.entry.seq, known.entry.hash):
            entries = require_sound(rows, known.entry.seq)
            return cls(known.books.after(entries[1:]), entries[-1], known.entry.seq)
        entries = require_sound(store.rows(connection))
        return cls(LedgerState.of(entries), entries[-1] if entries else None, 0)


def checkpoint_findings(file: CheckpointFile, entries: Sequence[Entry]) -> list[Finding]:
    """How the checkpoint of a home differs from the entries of its ledger, all of which are sound.

    It is believed by no command, or should not have been.
    """
    remedy = "remove it, and the next command that writes makes another"
    try:
        known = file.read()
    except CloisterError as error:
        return [Finding(0, f"the checkpoint {file.path} {error}, and is ignored: {remedy}")]
    if known is None:
        return []
    if known.entry not in [entry.anchor for entry in entries[known.entry.seq - 1 :][:1]]:
        return [
            Finding(
                known.entry.seq,
                f"is not the one of the checkpoint {file.path}, which is ignored: the end of the "
                "ledger was cut off or rewritten, or the checkpoint is of another ledger",
            )
        ]
    if known.books != LedgerState.of(entries[: known.entry.seq]):
        return [
            Finding(
                known.entry.seq,
                f"gives other books than the checkpoint {file.path}, which the key of this home "
                f"signed: {remedy}, and find out who else has that key",
            )
        ]
    return []


def _body(books: LedgerState) -> bytes:
    """Books as text: a line of all but releases, lines of shared values, and one of each release.

    A release that is as it was read is written as it was read.
    """
    earlier = books.releases if isinstance(books.releases, Lazy) else None
    texts, shared = (earlier.texts, earlier.shared) if earlier else ({}, Shared())
    lines = [
        f"{name} {texts.get(name) or dump(packed(Release, books.releases[name], shared))}"
        for name in books.releases
    ]
    rest = dump(packed(LedgerState, replace(books, releases={}), shared))
    head = f"{len(shared.texts)} {rest}"
    return "\n".join([head, *shared.texts, *lines]).encode("ascii")


def _books(body: bytes) -> LedgerState:
    head, *lines = body.decode("ascii").split("\n")
    number, _, rest = head.partition(" ")
    shared = Shared(lines[: int(number)])
    releases = Lazy(Release, dict(line.split(" ", 1) for line in lines[int(number) :]), shared)
    books: LedgerState = unpacked(LedgerState, load(rest), shared)
    return replace(books, releases=releases)


def _message(header: object) -> bytes:
    return pae(_TYPE, dump(header).encode("ascii"))


@cache
def _code() -> str:
    """The digest of the code of the ledger: other code may make other books of the same entries."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
