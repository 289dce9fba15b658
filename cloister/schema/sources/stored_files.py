"""Files where they lie, on a disk that this machine sees or in object storage: opened and pinned.

Object storage is read by Arrow's own file systems, so that no library of a vendor is needed: S3 is
``s3://bucket/key``, and others have the schemes that Arrow knows. Their keys are those of the
environment or of the machine, and never stand in a URL.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from cloister.errors import SpecError, StorageError
from cloister.schema.sources.files_and_urls import PLAIN_URL, is_plain

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}

Span = tuple[int, int | None]
WHOLE: Span = (0, None)
"""A part of a file or table, from the first to before the last of its bytes, row groups or pages;
None is the end, wherever it is."""

_IN_FOLDERS = "*.parquet"
"""The part files in a folder."""

_ENDS_BYTES = 1 << 16
"""Bytes at each end of a file that its pin holds: most footers of Parquet files are shorter, and
a request to object storage takes as long for fewer."""


def spans_from(begins: Sequence[int]) -> Sequence[Span]:
    """The spans that begin so and follow each other, to the end."""
    return list(zip(begins, [*begins[1:], None], strict=True))


def table_format(file: str | Path, declared: str | None = None) -> str:
    """``csv`` or ``parquet``, from the ending of a path or URL, else as declared.

    Raises:
        SpecError: the ending is unknown and nothing is declared.
    """
    path = urlsplit(str(file)).path if is_remote(file) else file
    known = _FORMATS.get(PurePosixPath(path).suffix.lower(), declared)
    if known is None:
        raise SpecError(
            f"{file}: its format is not known from its ending; set source.format to csv or parquet"
        )
    return known


def may_be_csv(source: str | Path, declared: str | None) -> bool:
    """Whether a file that a source names may be CSV: of several, each by its own ending.

    Raises:
        OSError: the source cannot be looked at.
    """
    _, pattern = _pattern(source)
    return table_format(pattern or source, "csv" if pattern else declared or "parquet") == "csv"


def is_remote(file: str | Path) -> bool:
    """Whether a file is named by the URL of an object rather than by a path."""
    return isinstance(file, str) and "://" in file


def open_file(file: str | Path) -> pa.NativeFile:
    """A file whose bytes are read anywhere; OSError if it cannot be opened."""
    system, path = _located(file)
    return system.open_input_file(path)


def open_stream(file: str | Path) -> pa.NativeFile:
    """The bytes of a file, unpacked if its ending says so; OSError if it cannot be opened."""
    system, path = _located(file)
    return system.open_input_stream(path, compression="detect")


def files_of(source: str | Path) -> tuple[str, ...]:
    """The files that a source names, in the order of their names.

    A path or URL is one file; a folder is the Parquet files in it. ``*`` in the last name stands
    for any letters, and not for the point or line that begins a name which is no data.

    Raises:
        StorageError: no file has such a name, or a folder has none; or it is a device or a pipe.
        OSError: the folder cannot be read.
    """
    folder, pattern = _pattern(source)
    if not pattern:
        _require_regular(source)
        return (str(source),)
    system, path = _located(folder)
    entries = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    names = sorted(e.base_name for e in entries if e.is_file and _fits(e.base_name, pattern))
    if not names:
        raise StorageError(
            f"{source} cannot be read (no file fits it, or no *.parquet is in it); correct "
            "source.path, or give --data"
        )
    return tuple(_within(folder, name) for name in names)


def _require_regular(source: str | Path) -> None:
    """Check that a path is no device or pipe, which may never end and cannot be read again."""
    if not is_remote(source) and Path(source).exists() and not Path(source).is_file():
        raise StorageError(
            f"the data {source} cannot be read; check that it is a regular file, which it is not"
        )


def identities(source: str | Path) -> tuple[str, ...]:
    """Where data lies: absolute paths without links, or objects; of several files with ``*``.

    Raises:
        StorageError: as :func:`files_of`.
        OSError: a folder cannot be read.
    """
    folder, pattern = _pattern(source)
    if is_remote(source):
        return (object_identity(f"{folder}/{pattern}" if pattern else str(source)),)
    if not pattern:
        return (str(Path(source).resolve()),)
    resolved = Path(folder).resolve()
    linked = {
        path for file in files_of(source) if (path := Path(file).resolve()).parent != resolved
    }
    return tuple(map(str, (resolved / pattern, *sorted(linked))))


def same_places(places: Sequence[str], known: Iterable[str]) -> list[str]:
    """The known places that hold a file of some others under another name, by device and inode.

    So do a hard link and a folder that is mounted twice; a table of SQLite lies in its file.
    Objects in storage are compared as their store lists them. What cannot be listed is equal to
    none.
    """
    may_be = [location for location in known if _may_share(location, places)]
    objects = {each for location in places for each in _objects(location)} if may_be else set()
    return [location for location in may_be if not objects.isdisjoint(_objects(location))]


def _may_share(location: str, places: Sequence[str]) -> bool:
    """Whether files of a location may be those of some places, so that they are looked at."""
    head, *_ = location.split("*")
    heads = [each.split("*")[0] for each in places]
    return not is_plain(location) or any(
        head.startswith(each) or each.startswith(head) for each in heads
    )


def as_sqlite_compares(name: str) -> str:
    """A name with its letters as SQLite compares them: those of ASCII alone have no case."""
    return name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


_IN_SQLITE = re.compile(r"sqlite:///(?P<file>.+) table (?:main\.)?(?P<table>.+)", re.IGNORECASE)


def _objects(location: str) -> set[tuple[int, int, str]]:
    """Device and inode of each file at a place, and the table that lies in it; objects by name."""
    if is_plain(location):
        return {(0, 0, name) for name in _objects_listed(location)}
    table = _IN_SQLITE.fullmatch(location)
    file = table["file"] if table else location
    name = as_sqlite_compares(table["table"]) if table else ""
    objects = set()
    with suppress(OSError, ValueError, StorageError):
        for path in map(Path, files_of(file) if Path(file).is_absolute() else ()):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                objects.add((status.st_dev, status.st_ino, name))
    return objects


def _objects_listed(location: str) -> set[str]:
    """The objects that a store lists for a pattern; of one without ``*`` it is not asked."""
    if "*" not in location:
        return {location}
    with suppress(OSError, StorageError):
        return {*map(object_identity, files_of(location))}
    return set()


_SAME_STORES = {"gcs": "gs", "abfss": "abfs"}
"""Schemes by which Arrow knows a store beside those it is named by here."""


def object_identity(url: str) -> str:
    """An object or objects (``*``) as a URL that is the same however its letters are written.

    Raises:
        StorageError: it is not :func:`is_plain`.
    """
    if not is_plain(url):
        raise StorageError(f"a place {PLAIN_URL}")
    parts = urlsplit(url)
    store = unquote(parts.netloc).removeprefix("anonymous@").removesuffix(":8020").lower()
    named = f"{store}{unquote(parts.path)}".rstrip("/")
    return f"{_SAME_STORES.get(parts.scheme, parts.scheme)}://{quote(named, safe='/*@:')}"


def _pattern(source: str | Path) -> tuple[str, str]:
    """The folder, and the pattern of names in it, of several files; no pattern of one file."""
    system, path = _located(source)
    head, _, name = str(source).rpartition("/")
    folder = head if is_remote(source) else str(Path(source).parent)
    match system.get_file_info(path).type:
        case fs.FileType.Directory:
            return str(source).rstrip("/"), _IN_FOLDERS
        case fs.FileType.NotFound if "*" in name:
            return folder, name
    return folder, ""


def _fits(name: str, pattern: str) -> bool:
    hidden = name.startswith((".", "_")) and pattern.startswith("*")
    letters = ".*".join(map(re.escape, pattern.split("*")))
    return not hidden and bool(re.fullmatch(letters, name, re.DOTALL))


def _within(folder: str, name: str) -> str:
    return f"{folder}/{quote(name)}" if is_remote(folder) else str(Path(folder) / name)


def pin_of(file: str | Path) -> str:
    """What a file is, as a text that another content hardly has: it is read again with the same.

    That of size, time of change, tag and version of an object, and of its first and last bytes.

    Raises:
        OSError: it cannot be read.
    """
    system, path = _located(file)
    with system.open_input_file(path) as opened:
        size, version = opened.size(), sorted(opened.metadata().items())
        ends = (
            opened.read_at(_ENDS_BYTES, 0),
            opened.read_at(_ENDS_BYTES, max(size - _ENDS_BYTES, 0)),
        )
    changed = system.get_file_info(path).mtime_ns
    return hashlib.sha256(repr((size, changed, version, ends)).encode()).hexdigest()


@contextmanager
def guarded_reading(file: str | Path) -> Iterator[None]:
    """Where a file is read.

    Raises:
        StorageError: the file cannot be opened, or does not fit in memory; names path and reason.
    """
    try:
        yield
    except OSError as error:
        reason, remedy = _hindrance(error, file)
        raise StorageError(f"{file} cannot be read ({reason}); {remedy}") from None
    except MemoryError:
        raise StorageError(
            f"{file} does not fit in memory; free memory or give fewer columns"
        ) from None


_HINDRANCES = {
    r"AWS Error NO_SUCH_BUCKET|Bucket '[^']*' not found": (
        "no such bucket",
        "correct its name, or AWS_ENDPOINT_URL",
    ),
    r"AWS Error (ACCESS_DENIED|INVALID_|SIGNATURE_|UNRECOGNIZED_CLIENT|MISSING_AUTH|EXPIRED_)": (
        "access is denied",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role that may read it",
    ),
    r"AWS Error (NETWORK_CONNECTION|REQUEST_TIMEOUT|UNKNOWN \(HTTP status 5)": (
        "the store cannot be reached",
        "check the network and AWS_ENDPOINT_URL, and try again",
    ),
    r"Unable to load lib": ("the library for its store is missing", "install it, or copy the data"),
}
"""What keeps an object from being read, and the remedy, by what Arrow's error says."""


def _hindrance(error: OSError, file: str | Path) -> tuple[str, str]:
    """What keeps a file from being read, and the remedy; nothing of the error's own text."""
    if isinstance(error, FileNotFoundError) and is_remote(file):
        return "no such bucket or object", "correct source.path"
    if error.errno:
        return os.strerror(error.errno), "check its path and permissions"
    known = (words for text, words in _HINDRANCES.items() if re.search(text, str(error)))
    return next(known, ("not readable", "check its path and permissions"))


def _located(file: str | Path) -> tuple[fs.FileSystem, str]:
    """The file system that a path or URL names, and the path in it.

    Raises:
        StorageError: no file system has such a URL.
        OSError: a bucket is not there, or its store cannot be reached to ask where it is.
    """
    if not is_remote(file):
        return fs.LocalFileSystem(), str(file)
    try:
        return fs.FileSystem.from_uri(file)
    except pa.ArrowException:
        raise StorageError(
            f"{urlsplit(str(file)).scheme}:// names no object storage that can be read here; write "
            "s3://bucket/key, its letters as in URLs, or a path"
        ) from None
