"""Statements about the files of a folder: in-toto Statement v1, read strictly.

A statement names files with their SHA-256 and says something of them, its predicate. A text that
two readers could understand differently is refused: a field twice, a number that is not whole.

Source: in-toto Attestation Framework 1 (github.com/in-toto/attestation: spec/v1/statement.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloister.errors import InputError, StorageError, VerificationError

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
"""The schema of a statement."""

FORMAT = 1
"""Version of our statements, as written into each predicate."""

MOST_BYTES = 16 << 20
"""Bytes of a statement, and of its envelope, at most: a folder of some 60,000 files."""

_DEEPEST = 32
"""Most levels of nesting in a statement."""

_LARGEST = 2**53 - 1
"""Integers beyond this are doubles in other readers, and lose digits (RFC 7493)."""

_DIGEST = re.compile("[0-9a-f]{64}")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[!-~]+")


class Fault(ValueError):
    """What is wrong with a text, in words that follow its name; never leaves this room."""


@dataclass(frozen=True)
class Statement:
    """Files by name with their SHA-256, and what is said of them: JSON without floats."""

    subjects: Mapping[str, str]
    predicate_type: str
    predicate: Mapping[str, Any]

    def facts(self, predicate_type: str) -> Mapping[str, Any]:
        """The predicate, if it is of the expected type: an approval is not read as a certificate.

        Raises:
            VerificationError: it is of another type.
        """
        if self.predicate_type != predicate_type:
            raise VerificationError(
                f"The statement is of the type {self.predicate_type}, not {predicate_type}; choose "
                "the file of that type"
            )
        return self.predicate


@dataclass(frozen=True)
class ChangedFiles:
    """Files of a folder that differ from a statement's, by name."""

    altered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.altered or self.missing or self.added)

    def __str__(self) -> str:
        kinds = {"was altered": self.altered, "is missing": self.missing, "was added": self.added}
        return "\n".join(
            f"{printable(name)}: {kind}" for kind, names in kinds.items() for name in names
        )


def make_statement(
    files: Mapping[str, str], predicate_type: str, predicate: Mapping[str, object]
) -> bytes:
    """The bytes of a statement over files, by name with their SHA-256 in hexadecimal.

    The predicate is any JSON but floats, as in the ledger: readers print and round them
    differently, so amounts are written as text. Integers are those that a double holds. A field
    ``format`` is added to it.

    Raises:
        InputError: a name, digest, type or value cannot be written.
    """
    if "format" in predicate:
        raise InputError("The predicate has a field 'format', which is ours; name it otherwise")
    content = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": files[name]}} for name in sorted(files)],
        "predicateType": predicate_type,
        "predicate": {**predicate, "format": FORMAT},
    }
    try:
        payload = _dumped(content)
        parse_statement(payload)
    except Fault as fault:
        raise InputError(f"The statement {fault}; correct it before it is signed") from None
    return payload


def parse_statement(payload: bytes) -> Statement:
    """The statement of a text.

    Raises:
        Fault: it is not one of ours.
    """
    fields = exact_fields(
        strict_json(payload), "a statement", ("_type", "subject", "predicateType", "predicate")
    )
    if fields["_type"] != STATEMENT_TYPE:
        raise Fault(f"is not of the type {STATEMENT_TYPE}")
    kind, predicate = fields["predicateType"], fields["predicate"]
    if not isinstance(kind, str) or not _URI.fullmatch(kind):
        raise Fault("has a 'predicateType' that is not a URI")
    if not isinstance(predicate, dict) or type(predicate.get("format")) is not int:
        raise Fault("has a 'predicate' without a number 'format'")
    if predicate["format"] != FORMAT:
        raise Fault(
            f"is of format {predicate['format']} and this version reads {FORMAT}: use a later one"
        )
    facts = {key: value for key, value in predicate.items() if key != "format"}
    return Statement(_subjects(fields["subject"]), kind, facts)


def folder_digests(folder: Path, apart: Collection[str] = ()) -> dict[str, str]:
    """The files of a folder, by path with forward slashes, with their SHA-256.

    ``apart`` are paths that are left out: those of the statements themselves.

    Raises:
        StorageError: a file cannot be read, or there is a link, a device or an empty folder.
    """
    digests = {name: _digest(folder, name) for name in _names(folder, apart)}
    for name, digest in digests.items():
        if not digest:
            raise StorageError(
                f"{printable(name)} of {folder} is not a plain file and cannot be signed; remove it"
            )
    return digests


def compare_folder(statement: Statement, folder: Path, apart: Collection[str] = ()) -> ChangedFiles:
    """The files of a folder that a statement does not name as they are.

    What is not a plain file is altered or added. ``apart`` are paths that are left out.

    Raises:
        StorageError: a file cannot be read.
    """
    signed = {name: digest for name, digest in statement.subjects.items() if name not in apart}
    names = _names(folder, apart)
    altered = [name for name in names if name in signed and _digest(folder, name) != signed[name]]
    return ChangedFiles(
        tuple(altered),
        tuple(sorted(signed.keys() - set(names))),
        tuple(name for name in names if name not in signed),
    )


def strict_json(text: bytes) -> object:
    """The value of a JSON text that all readers read alike.

    Raises:
        Fault: it is too long, not JSON in UTF-8, or could be read in two ways.
    """
    if len(text) > MOST_BYTES:
        raise Fault(f"is longer than {MOST_BYTES:,} bytes")
    try:
        content = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except Fault:
        raise
    except UnicodeDecodeError:
        raise Fault("is not text in UTF-8") from None
    except (ValueError, RecursionError):
        raise Fault("is not JSON") from None
    return _exact(content)


def exact_fields(content: object, what: str, names: Collection[str]) -> dict[str, Any]:
    """The fields of an object, which must be exactly these.

    Raises:
        Fault: it is not an object, or has others.
    """
    if not isinstance(content, dict) or content.keys() != set(names):
        raise Fault(f"is refused: {what} has the fields {', '.join(names)}, and no others")
    return content


def printable(name: str) -> str:
    """A name for a message: what a terminal would obey, or cannot print, is escaped."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in name
    )


def _subjects(content: object) -> dict[str, str]:
    if not isinstance(content, list) or not content:
        raise Fault("names no files in 'subject'")
    digests: dict[str, str] = {}
    for subject in content:
        fields = exact_fields(subject, "a subject", ("name", "digest"))
        digest = exact_fields(fields["digest"], "a digest", ("sha256",))["sha256"]
        name = fields["name"]
        if not isinstance(name, str) or "\0" in name or {"", ".", ".."} & {*name.split("/")}:
            raise Fault("names a file that is not a path inside a folder")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise Fault(f"has no SHA-256 of 64 hexadecimal digits for {printable(name)}")
        if name in digests:
            raise Fault(f"names {printable(name)} twice")
        digests[name] = digest
    return digests


def _names(folder: Path, apart: Collection[str]) -> list[str]:
    """All files, links and folders that hold nothing; sorted."""
    if not folder.is_dir():
        raise StorageError(f"{folder} is not a folder; correct the path")
    with reaching(folder):
        names = [
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
        ]
    return sorted(name for name in names if name not in apart)


def _digest(folder: Path, name: str) -> str:
    """The SHA-256 of a file; nothing for whatever is not a plain file."""
    path = folder / name
    if path.is_symlink() or not path.is_file():
        return ""
    with reaching(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def reaching(
    path: Path | str, verb: str = "read", remedy: str = "make room or correct the path"
) -> Iterator[None]:
    """Turn the system's refusal of a path into ``StorageError``: what cannot be done with it."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(f"{path} cannot be {verb} ({reason}); {remedy}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise Fault("has a field twice")
    return content


def _refuse_number(_: str) -> object:
    raise Fault("holds a number that is not whole")


def _dumped(content: object) -> bytes:
    text = json.dumps(_exact(content), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")


def _exact(value: object, depth: int = 0) -> object:
    """The value as plain JSON that all readers read alike."""
    if depth > _DEEPEST:
        raise Fault(f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, str):
        return _exact_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _exact_integer(value)
    if isinstance(value, Mapping):
        return {_exact_text(key): _exact(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item, depth + 1) for item in value]
    raise Fault(f"holds a {type(value).__name__}: write it as text")


def _exact_integer(number: int) -> int:
    if abs(number) > _LARGEST:
        raise Fault("holds an integer of 2^53 or more, which other readers round: write it as text")
    return number


def _exact_text(text: object) -> str:
    if not isinstance(text, str):
        raise Fault("has a field whose name is not text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Fault("holds text that UTF-8 cannot write: rename the file, or correct it") from None
    return text
