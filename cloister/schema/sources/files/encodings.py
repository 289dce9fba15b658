"""Encodings of text files: UTF-8, UTF-16, and those of one byte a character that contain ASCII."""

from __future__ import annotations

import re

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
