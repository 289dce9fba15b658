"""Where public files and databases are: small files, encodings of text, and URLs.

Small public files are read whole if they are regular and not too long, so that no pipe or device
stops a command. Encodings are UTF-8, UTF-16, and those of one byte a character that contain ASCII.

A password never stands in a URL, since specs, process lists, logs and ledgers show it: ``${NAME}``
is read from the environment when a connection is made, and PostgreSQL also reads ``~/.pgpass`` and
service files by itself.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit


def read_small_file(path: Path, most: int) -> bytes:
    """The bytes of a regular file.

    Args:
        path: the file; links are followed.
        most: bytes that it may hold.

    Raises:
        OSError: it cannot be read, is no regular file, or is longer; ``strerror`` says which.
    """
    try:
        status = path.stat()
    except ValueError:  # a name with a null byte
        raise OSError(errno.ENOENT, "no file has such a name", str(path)) from None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_size > most:
        raise OSError(errno.EFBIG, f"it is longer than {most:,} bytes", str(path))
    with path.open("rb") as file:
        return file.read(most)


def reason_of(error: OSError) -> str:
    """What was wrong with a file, in the words of the system or of :func:`read_small_file`."""
    return error.strerror or os.strerror(error.errno or 0)


UTF_8 = "utf-8"
MARKS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
"""The byte order mark of each encoding of two bytes a character: what a file begins with."""

BYTE_ORDER_MARK = "\ufeff"
"""The letter that such a mark is."""

_FAMILIES = re.compile(r"(latin|iso-?_?8859|cp|windows|koi8|mac)[a-z0-9_-]*", re.IGNORECASE)
_WIDE = re.compile(r"utf[-_]?16[-_]?(?P<order>le|be)?", re.IGNORECASE)
_ASCII = bytes(range(128))


def require_encoding(name: str) -> str:
    """The name of a known encoding whose lines and cells can be told apart on their own.

    Raises:
        ValueError: it is none, or the order of its bytes is not said.
    """
    if name.lower() in ("utf-8", "utf8"):
        return UTF_8
    wide = _WIDE.fullmatch(name)
    if wide is not None and wide["order"] is None:
        raise ValueError(
            "is written in two orders of bytes; write utf-16-le if the file begins with the bytes "
            "FF FE, as those of Windows do, or utf-16-be"
        )
    if wide is not None:
        return f"utf-16-{wide['order'].lower()}"
    if _FAMILIES.fullmatch(name) is None or not _is_of_single_bytes(name):
        raise ValueError(
            "is no encoding that can be read; write utf-8, utf-16-le, latin-1, cp1252 or another "
            "of one byte a character, or save the file as UTF-8"
        )
    return name


def is_wide(encoding: str) -> bool:
    """Whether an encoding has two bytes a character, and so a byte order mark."""
    return encoding in MARKS


def can_encode(text: str, encoding: str) -> bool:
    """Whether an encoding has all characters of a text."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def decode_text(raw: bytes, encoding: str) -> str:
    """The text of some bytes; bytes that stand for no character become backslash escapes."""
    return raw.decode(encoding, "backslashreplace")


def _is_of_single_bytes(name: str) -> bool:
    try:
        every = bytes(range(256)).decode(name, "replace")
        return len(every) == 256 and _ASCII.decode(name) == _ASCII.decode("ascii")
    except (LookupError, UnicodeError):
        return False


VARIABLE = re.compile(r"\$\{(\w+)\}")

_LITERAL = re.compile(
    r"://[^:/]*:[^@]+@|[?&][^=&]*(passw|secret|token)[^=&]*=[^&]|pwd(=|%3D)[^;&]", re.IGNORECASE
)
"""A password where SQLAlchemy and drivers look for one, once variables are left out."""

HIDE_IT = (
    "holds a password, which logs and records would show; write ${NAME} in its place and set that "
    "environment variable, or use ~/.pgpass or a service file"
)

_STORES = re.compile(
    r"s3://[^@:]+|gc?s://(anonymous@)?[^@:]+|abfss?://[^@:]+@[^@:]+\.dfs\.core\.[^@:]+"
    r"|hdfs://[^@:]+(:8020)?"
)
"""A bucket, container or name node as it is written here, where Arrow also takes keys, accounts and
other ports beside it; 8020 is the usual port."""

PLAIN_URL = (
    "is no object as s3://BUCKET/KEY, gs://BUCKET/KEY, hdfs://HOST/PATH or "
    "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY, without keys, options and names that are "
    "empty, '.' or '..'; write it so, and the rest in the environment, as AWS_ENDPOINT_URL"
)
"""What is said of another URL, which may hold a key and is not repeated."""


def is_plain(url: str) -> bool:
    """Whether a URL of an object is written in the one way by which it is told from others.

    Servers and libraries read ``a/./b`` as ``a/b``, and leave out ports, users and options.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    _, *names = unquote(parts.path).removesuffix("/").split("/")
    store = _STORES.fullmatch(unquote(f"{parts.scheme}://{parts.netloc}"))
    return bool(store) and {"", ".", ".."}.isdisjoint(names) and {"?", "#"}.isdisjoint(url)


def is_url(path: str) -> bool:
    """Whether a place is the URL of a database rather than a path."""
    return "://" in path or path.startswith("${")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host by this name or address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def without_credentials(url: str) -> str:
    """A URL without the name, the password and the options that it may hold."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def holds_password(url: str) -> bool:
    """Whether a password stands in a URL itself."""
    return _LITERAL.search(VARIABLE.sub("", url)) is not None


def table_place(named: str) -> tuple[str | None, str]:
    """The schema, None if it is the usual one, and the name of a table as a spec writes it."""
    schema, _, table = named.rpartition(".")
    return schema or None, table
