"""Public lists of values: written out, in a file beside the spec, or as a numbered pattern."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cloister.errors import SpecError
from cloister.schema.attributes import Scalar, ValuesFile, ValuesPattern

LONGEST_PATTERN = 10_000_000

NUMBERED = re.compile(r"(?P<prefix>[^{}]*)\{(?P<first>\d+)\.\.(?P<last>\d+)\}(?P<suffix>[^{}]*)")


def resolve_values(declared: Sequence[Scalar] | ValuesFile | ValuesPattern, folder: Path) -> tuple[Scalar, ...]:
    """The values of a declaration, in order, shape (size,); numbers that include a decimal are all floats.

    Files are looked up in ``folder`` and hold one value a line, UTF-8; blank lines are passed over.

    Raises:
        SpecError: an unreadable file, a malformed pattern, an empty list, or a value that is listed twice.
    """
    if isinstance(declared, ValuesFile):
        return _unique(_lines_of(folder / declared.file), f"the values file {declared.file}")
    if isinstance(declared, ValuesPattern):
        return _unique(_numbered(declared.pattern), f"the pattern {declared.pattern}")
    return _unique(_same_kind(declared), "the list of values")


def _same_kind(values: Sequence[Scalar]) -> list[Scalar]:
    kinds = {type(value) for value in values}
    return [float(value) for value in values] if kinds == {int, float} else list(values)


def _lines_of(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except OSError as error:
        raise SpecError(f"the values file {path} cannot be read ({error.strerror}); correct its path") from None
    except UnicodeDecodeError:
        raise SpecError(f"the values file {path} is not UTF-8 text; save it as UTF-8") from None


def _numbered(pattern: str) -> list[str]:
    match = NUMBERED.fullmatch(pattern)
    if match is None:
        raise SpecError(f"the pattern {pattern} needs one numbered range; write it like zip{{501..99950}}")
    first, last = int(match["first"]), int(match["last"])
    if last - first >= LONGEST_PATTERN:
        raise SpecError(f"the pattern {pattern} has more than {LONGEST_PATTERN:,} values; narrow its range")
    width = len(match["first"]) if match["first"].startswith("0") else 0
    return [f"{match['prefix']}{number:0{width}d}{match['suffix']}" for number in range(first, last + 1)]


def _unique(values: Sequence[Scalar], what: str) -> tuple[Scalar, ...]:
    if not values:
        raise SpecError(f"{what} is empty; list at least one value")
    twice = [value for value, count in Counter(map(str, values)).items() if count > 1]
    if twice:
        raise SpecError(f"{what} holds {len(twice)} value(s) more than once, such as '{twice[0]}'; list each once")
    return tuple(values)
