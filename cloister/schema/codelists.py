"""Public lists of values: written out, in a file beside the spec, or as a numbered pattern."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from cloister.errors import SpecError
from cloister.figures import count_of
from cloister.schema.attributes import Scalar, ValuesFile, ValuesPattern
from cloister.schema.sources.files_and_urls import read_small_file, reason_of

_MOST_VALUES = 1_000_000
"""Values of a list at most: a thousand times those of the longest that was released.

One value takes about 100 bytes of memory.
"""

MOST_VALUES_BYTES = 20_000_000
"""Bytes of a values file at most: a million lines of 20 bytes."""

MOST_PATTERN_DIGITS = 18
"""Digits of a number in a pattern at most: as many as a 64-bit integer holds."""

NUMBERED_PATTERN = re.compile(
    r"(?P<prefix>[^{}]*)\{(?P<first>\d+)\.\.(?P<last>\d+)\}(?P<suffix>[^{}]*)"
)


def resolve_values(
    declared: Sequence[Scalar] | ValuesFile | ValuesPattern, folder: Path
) -> tuple[Scalar, ...]:
    """The values of a declaration, in order, shape (size,).

    If one number is a decimal, all are floats. Files are looked up in ``folder`` and hold one value
    a line, UTF-8; blank lines are ignored.

    Raises:
        SpecError: an unreadable file, a malformed pattern, an empty list, or a value that is listed
            twice.
    """
    if isinstance(declared, ValuesFile):
        return _unique(_lines_of(folder / declared.file), f"the values file {declared.file}")
    if isinstance(declared, ValuesPattern):
        return _unique(_numbered(declared.pattern), f"the pattern {declared.pattern}")
    return _unique(_same_kind(declared), "the list of values")


def _same_kind(values: Sequence[Scalar]) -> list[Scalar]:
    kinds = {type(value) for value in values}
    return [float(value) for value in values] if kinds == {int, float} else list(values)


def require_modest(
    declared: Iterable[Sequence[Scalar] | ValuesFile | ValuesPattern], folder: Path
) -> None:
    """Check that the lists of a spec fit into memory together, before any of them is read.

    Raises:
        SpecError: their patterns have too many values, or their files are too long.
    """
    lists = list(declared)
    values = sum(_count(each.pattern) for each in lists if isinstance(each, ValuesPattern))
    if values > _MOST_VALUES:
        raise SpecError(
            f"the patterns of all lists have more than {_MOST_VALUES:,} values; narrow their ranges"
        )
    read = sum(_bytes_of(folder / each.file) for each in lists if isinstance(each, ValuesFile))
    if read > MOST_VALUES_BYTES:
        raise SpecError(
            f"the values files hold more than {MOST_VALUES_BYTES:,} bytes together; shorten them"
        )


def _count(pattern: str) -> int:
    try:
        return len(_range_of(pattern)[0])
    except SpecError:
        return 0


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def _lines_of(path: Path) -> list[str]:
    try:
        raw = read_small_file(path, MOST_VALUES_BYTES)
    except OSError as error:
        raise SpecError(
            f"the values file {path} cannot be read ({reason_of(error)}); correct its path"
        ) from None
    try:
        lines = [line for line in raw.decode("utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError:
        raise SpecError(f"the values file {path} is not UTF-8 text; save it as UTF-8") from None
    if len(lines) > _MOST_VALUES:
        raise SpecError(f"the values file {path} has more than {_MOST_VALUES:,} values; shorten it")
    return lines


def _numbered(pattern: str) -> list[str]:
    numbers, width, prefix, suffix = _range_of(pattern)
    if len(numbers) > _MOST_VALUES:
        raise SpecError(
            f"the pattern {pattern} has more than {_MOST_VALUES:,} values; narrow its range"
        )
    return [f"{prefix}{number:0{width}d}{suffix}" for number in numbers]


def _range_of(pattern: str) -> tuple[range, int, str, str]:
    """The numbers of a pattern, their least width, and the text before and after them."""
    match = NUMBERED_PATTERN.fullmatch(pattern)
    if match is None:
        raise SpecError(
            f"the pattern {pattern} needs one numbered range; write it like zip{{501..99950}}"
        )
    if max(len(match["first"]), len(match["last"])) > MOST_PATTERN_DIGITS:
        raise SpecError(
            f"the pattern {pattern} has a number of more than {MOST_PATTERN_DIGITS} digits; "
            "write shorter ones"
        )
    width = len(match["first"]) if match["first"].startswith("0") else 0
    return (
        range(int(match["first"]), int(match["last"]) + 1),
        width,
        match["prefix"],
        match["suffix"],
    )


def _unique(values: Sequence[Scalar], what: str) -> tuple[Scalar, ...]:
    if not values:
        raise SpecError(f"{what} is empty; list at least one value")
    twice = [value for value, count in Counter(map(str, values)).items() if count > 1]
    if twice:
        raise SpecError(
            f"{what} holds {count_of(len(twice), 'value')} more than once, such as '{twice[0]}'; "
            "list each once"
        )
    return tuple(values)
