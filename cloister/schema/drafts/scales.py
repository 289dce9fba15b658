"""Texts that have an order by what they say: months, days of the week, ranges of numbers.

Privacy: which texts occur is guessed from the data; their order is that of the words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise

from cloister.schema.drafts.columns import ColumnCells, Guess
from cloister.schema.written_moments import MONTHS, number_of_name

_FEWEST = 3
"""Different texts at least: of two the order may be meant otherwise."""

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBER = r"([-+]?\d+(?:\.\d+)?)"
_BETWEEN = re.compile(
    rf"[\[(]?\s*{_NUMBER}\s*(?:-|\u2013|\u2014|,|;|\.\.|\bto\b)\s*{_NUMBER}\s*[])]?", re.IGNORECASE
)
_BELOW = re.compile(rf"(?:<=?|≤|under|below|up to|less than)\s*{_NUMBER}", re.IGNORECASE)
_ABOVE = re.compile(rf"(?:>=?|≥|over|above|more than)\s*{_NUMBER}", re.IGNORECASE)
_FROM = re.compile(rf"{_NUMBER}\s*(?:\+|or more|or over|and over|and above)", re.IGNORECASE)

_Ends = tuple[float, float]


def ordered_texts(cells: ColumnCells) -> Guess | None:
    """Texts that are all names of months or of days, or ranges of which one follows the other."""
    if not cells.is_text or cells.distinct < _FEWEST:
        return None
    texts = sorted(map(str, cells.known.unique()))
    for read, what in _SCALES:
        ends = {text: read(text) for text in texts}
        ordered = sorted(texts, key=lambda text: ends[text] or (0.0, 0.0))
        if _follow([ends[text] for text in ordered]):
            why = f"{what}, in their order; all that occur: declare the public list"
            return Guess({"type": "ordinal", "values": ordered}, why)
    return None


def _follow(ends: list[_Ends | None]) -> bool:
    """Whether each range begins where the one before has ended, or later; most are no numbers."""
    known = [each for each in ends if each]
    numbers = sum(low == high for low, high in known)
    pairs = pairwise(known)
    in_order = all(first[0] < second[0] and first[1] <= second[0] for first, second in pairs)
    return in_order and len(known) == len(ends) and numbers in (0, 1, len(ends))


def _named(names: tuple[str, ...]) -> Callable[[str], _Ends | None]:
    def read(text: str) -> _Ends | None:
        number = number_of_name(text, names)
        return None if number is None else (number, number)

    return read


def _range(text: str) -> _Ends | None:
    """The ends of a range of numbers, infinite where it has none; those of a number are it."""
    if match := _BETWEEN.fullmatch(text.strip()):
        low, high = map(float, match.groups())
        return (low, high) if low < high else None
    for pattern, below in ((_BELOW, True), (_ABOVE, False), (_FROM, False)):
        if match := pattern.fullmatch(text.strip()):
            end = float(match[1])
            return (-math.inf, end) if below else (end, math.inf)
    alone = re.fullmatch(r"(\d+)", text.strip())
    return (float(alone[1]), float(alone[1])) if alone else None


_SCALES = (
    (_named(MONTHS), "names of months"),
    (_named(DAYS), "names of days"),
    (_range, "ranges of numbers"),
)
