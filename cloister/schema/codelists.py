"""Public lists of values: written out, in a file beside the spec, or as a numbered pattern.

And trees of codes above them: the node of each value on every level, from prefixes or parents.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cloister.errors import SpecError
from cloister.figures import count_of
from cloister.schema.attributes import Parents, ParentsFile, Scalar, ValuesFile, ValuesPattern
from cloister.schema.sources.files_and_urls import read_small_file, reason_of

_MOST_VALUES = 1_000_000
"""Values of a list at most: a thousand times those of the longest that was released.

One value takes about 100 bytes of memory.
"""

MOST_VALUES_BYTES = 20_000_000
"""Bytes of a values file at most: a million lines of 20 bytes."""

MOST_PATTERN_DIGITS = 18
"""Digits of a number in a pattern at most: as many as a 64-bit integer holds."""

MOST_LEVELS = 4
"""Levels above the values at most: each is counted, and takes a part of the budget."""

_FEWEST_CODES = 100
"""Codes at least for which a tree is proposed: noise seldom drowns a shorter list."""

_BRANCHES = 4
"""Nodes below a node at least, on average: a level that hardly branches is not worth its noise."""

_CODE = re.compile(r"(?=.{1,20}$)[A-Za-z]{0,3}[-.]?[0-9][0-9A-Za-z]*([-./ ][0-9A-Za-z]+)*")
"""Codes of classifications: at most three letters, and digits; not longer than 20 in all."""

Levels = tuple[tuple[int, ...], ...]
"""Coarse first, the number of the node of each value; shape (levels, values)."""

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
        return _unique(lines_of(folder / declared.file), f"the values file {declared.file}")
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


def lines_of(path: Path, what: str = "values file") -> list[str]:
    """The lines of a text file that are not blank.

    Raises:
        SpecError: it cannot be read, is not UTF-8, or is too long.
    """
    try:
        raw = read_small_file(path, MOST_VALUES_BYTES)
    except OSError as error:
        raise SpecError(
            f"the {what} {path} cannot be read ({reason_of(error)}); correct its path"
        ) from None
    try:
        lines = [line for line in raw.decode("utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError:
        raise SpecError(f"the {what} {path} is not UTF-8 text; save it as UTF-8") from None
    if len(lines) > _MOST_VALUES:
        raise SpecError(f"the {what} {path} has more than {_MOST_VALUES:,} lines; shorten it")
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


def resolve_levels(
    declared: Sequence[int] | ParentsFile | Parents | None, labels: Sequence[str], folder: Path
) -> Levels:
    """The levels above listed values (values,), none of which puts all or no values together.

    Files are looked up in ``folder``. A value whose branch ends above a level is a node there.

    Raises:
        SpecError: lengths do not increase, or one is as long as all values; a file that cannot be
            read; a value without a parent, a code with two, a circle; too many levels.
    """
    if declared is None:
        return ()
    if isinstance(declared, ParentsFile | Parents):
        paths = _paths(parents_of(declared, folder), labels)
    else:
        paths = _prefixes(declared, labels)
    depth = max(map(len, paths))
    if depth > MOST_LEVELS:
        raise SpecError(
            f"the tree has {depth} levels above the values, of which at most {MOST_LEVELS} are "
            "counted; leave some out"
        )
    ends = zip(paths, labels, strict=True)
    named = [[*path, *[label] * (depth - len(path))] for path, label in ends]
    levels = (_numbered_nodes(names) for names in zip(*named, strict=True))
    by_size = {max(level) + 1: level for level in levels}
    return tuple(by_size[size] for size in sorted(by_size) if 1 < size < len(labels))


def _numbered_nodes(names: Sequence[str]) -> tuple[int, ...]:
    """The number of each name (values,), in the order in which they first occur."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return tuple(numbers[name] for name in names)


def _prefixes(lengths: Sequence[int], labels: Sequence[str]) -> list[list[str]]:
    """The prefixes of each value that are shorter than the value."""
    longest = max(map(len, labels))
    if list(lengths) != sorted(set(lengths)) or not lengths or lengths[0] < 1:
        raise SpecError(
            "the lengths of prefixes should increase from 1 on; write for example [1, 3]"
        )
    if lengths[-1] >= longest:
        raise SpecError(
            f"a prefix of {lengths[-1]} letters is as long as the longest value; write shorter ones"
        )
    return [[label[:n] for n in lengths if n < len(label)] for label in labels]


def prefix_lengths(labels: Sequence[str]) -> list[int]:
    """The lengths of prefixes by which labels make a tree; none if they are no long list of codes.

    Each level has enough more nodes than the one above to be worth counting.
    """
    if len(labels) < _FEWEST_CODES or not all(map(_CODE.fullmatch, labels)):
        return []
    lengths, nodes = list[int](), 1
    for length in range(1, max(map(len, labels))):
        size = len({label[:length] for label in labels})
        if nodes * _BRANCHES <= size <= len(labels) // _BRANCHES:
            lengths, nodes = [*lengths, length], size
    return lengths[:MOST_LEVELS]


def _paths(parents: Mapping[str, str], labels: Iterable[str]) -> list[list[str]]:
    """The ancestors of each value, the root first."""
    return [_ancestors(parents, label)[::-1] for label in labels]


def _ancestors(parents: Mapping[str, str], label: str) -> list[str]:
    """The ancestors of a value, the nearest first."""
    if label not in parents:
        raise SpecError(f"the hierarchy has no parent of the value '{label}'; add it")
    ancestors = [parents[label]]
    while (above := parents.get(ancestors[-1])) is not None:
        if above == label or above in ancestors:
            raise SpecError(
                f"the hierarchy goes in a circle: '{above}' is above itself; correct a parent"
            )
        ancestors.append(above)
    return ancestors


def parents_of(declared: ParentsFile | Parents, folder: Path) -> dict[str, str]:
    """The parent of each code; see :func:`resolve_levels`."""
    if isinstance(declared, Parents):
        return {str(code): str(parent) for code, parent in declared.parents.items()}
    parents: dict[str, str] = {}
    for number, code, parent in _pairs(declared.file, folder):
        if parents.get(code, parent) != parent:
            raise SpecError(
                f"line {number} of the hierarchy file {declared.file} gives '{code}' a second "
                "parent; keep one"
            )
        if code == parent:
            raise SpecError(
                f"line {number} of the hierarchy file {declared.file}: '{code}' is its own "
                "parent; leave the line out, or correct it"
            )
        parents[code] = parent
    return parents


def _pairs(file: str, folder: Path) -> Iterator[tuple[int, str, str]]:
    """The number of each line, and its code and parent."""
    reader = csv.reader(lines_of(folder / file, "hierarchy file"))
    for cells in reader:
        if len(cells) != 2 or not all(cell.strip() for cell in cells):
            raise SpecError(
                f"line {reader.line_num} of the hierarchy file {file} is no pair of a code and "
                "its parent; write: CODE,PARENT"
            )
        yield reader.line_num, cells[0].strip(), cells[1].strip()
