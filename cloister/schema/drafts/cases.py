"""What a column is: a table of cases, which is walked from its first line to the one that fits.

A case has a regular expression of all different texts, what they are read as, and an example.

Privacy: a guess holds values of the data, and one row may decide any of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pandas as pd
from pandas.api import types as pt

from cloister.schema.attributes import DATA_DERIVED, AnyAttribute
from cloister.schema.codelists import MOST_PATTERN_DIGITS, prefix_lengths
from cloister.schema.drafts import columns, times
from cloister.schema.drafts.numbers import ANY_NUMBER, ANY_WHOLE, guess_decimal, guess_whole
from cloister.schema.drafts.scales import ordered_texts
from cloister.schema.parsing import parse
from cloister.schema.written_numbers import CURRENCIES, NO_UNIT, unit_beside

_WORDS = (
    *(("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("T", "F"), ("t", "f")),
    *(("yes", "no"), ("Yes", "No"), ("YES", "NO"), ("Y", "N"), ("y", "n"), ("on", "off")),
    *(("j", "n"), ("J", "N"), ("ja", "nein"), ("Ja", "Nein"), ("oui", "non"), ("Oui", "Non")),
    *(("1", "0"), ("1.0", "0.0"), ("1,0", "0,0")),
)
"""Words of true and false: as Python, R, PostgreSQL and YAML write them; yes and no in English,
German and French; flags as numbers."""

_FLAG = {"type": "boolean", "true": "1", "false": "0"}
_FLAG_WHY = "0 and 1 alone: a flag; a count needs type integer"

_MOST_ODD = 0.02
"""The share of values that a remark takes for slips; with more, the column is of its own type."""

_SHARE_PLACES = 3
"""Decimal places of a share of rows."""

_NEARLY_ALL = 0.9
"""The share of distinct values from which texts are taken for a key, or for free text."""

_CODE_DIGITS = 5
"""Digits from which numbers of one length, each in several rows, are taken for codes."""

_ROUND = 100
"""Counters start at multiples of it, or one above: 0, 1, 100001."""

_LISTED_WITHOUT_REMARK = 50
"""Values of a list that a person reads through easily."""

_MOSTLY = 0.9
"""The share of values that must be alike for a hint on all of them."""

_MOST_MARKS = 3
"""Texts beside numbers at most that are named: ``<0.5``, ``trace``."""

ROW = "another value in each row: a key, not modelled; synthetic rows get fresh numbers"
_PERSON = (
    "by its name a person, with several rows: a key; if a person is to be protected, write "
    "privacy.unit: {key: ..., max_rows: ...}"
)


def _ordered(cells: columns.ColumnCells) -> columns.Guess | None:
    kind = cells.known.dtype
    if not isinstance(kind, pd.CategoricalDtype) or not kind.ordered:
        return None
    why = "categories in the order of the file's own list: declare the public list"
    return columns.Guess({"type": "ordinal", "values": list(map(str, kind.categories))}, why)


def _native_flag(cells: columns.ColumnCells) -> columns.Guess | None:
    if pt.is_bool_dtype(cells.known.dtype):
        return columns.Guess({"type": "boolean"}, "true or false")
    if not pt.is_numeric_dtype(cells.known.dtype) or not cells.known.isin([0, 1]).all():
        return None
    return columns.Guess(_FLAG | cells.stored_as, _FLAG_WHY)


def _two_words(cells: columns.ColumnCells) -> columns.Guess | None:
    words = set(cells.known.unique()) if cells.is_text else set()
    pair = next((pair for pair in _WORDS if words == set(pair)), None)
    if pair is None:
        return None
    keys = {} if pair == _WORDS[0] else {"true": pair[0], "false": pair[1]}
    two = "two words, true and false by what they usually mean"
    return columns.Guess({"type": "boolean", **keys}, _FLAG_WHY if "1" in words else two)


def _one_flag(cells: columns.ColumnCells) -> columns.Guess | None:
    if not cells.is_text:
        return None
    why = "occurs: guessed a flag; a count needs type integer, or put it in ignore"
    return columns.Guess(_FLAG, f"only {cells.known.iloc[0]} {why}")


def _numbered_person(cells: columns.ColumnCells) -> columns.Guess | None:
    return _numbered(cells, _PERSON) if cells.are_persons else None


def _numbered_row(cells: columns.ColumnCells) -> columns.Guess | None:
    """A key of digits, each in one row: by its name, or counted up from a round number."""
    if not cells.unique or cells.texts is None:
        return None
    name, numbers = cells.name, cells.texts.astype("int64")
    first, last = int(numbers.min()), int(numbers.max())
    usual = first > 1 and columns.public_range(name, first, last) is not None
    counted = first % _ROUND in (0, 1) and last - first == len(numbers) - 1 and not usual
    named = columns.names_a_key(name) or columns.names_a_code(name) or columns.names_a_person(name)
    key = f"{ROW}; integer if it is a quantity"
    return _numbered(cells, key) if named or counted else None


def _numbered(cells: columns.ColumnCells, why: str) -> columns.Guess:
    assert cells.texts is not None
    lengths = cells.texts.str.len()
    width = int(lengths.max())
    padded = lengths.nunique() == 1 and cells.texts.str.startswith("0").any()
    first = "0" * (width - 1) + "1" if padded else "1"
    pattern = f"{{{first}..{'9' * width}}}"
    return columns.Guess({"type": "text", "pattern": pattern, **cells.stored_as}, why)


def _compact_date(cells: columns.ColumnCells) -> columns.Guess | None:
    return times.guess_date(cells) if times.is_compact_date(cells) else None


def _codes(
    cells: columns.ColumnCells, reason: Callable[[columns.ColumnCells], str]
) -> columns.Guess | None:
    """Digits that are no quantity, for a reason, unless their name has a range."""
    assert cells.texts is not None
    numbers = cells.texts.astype("int64")
    if columns.public_range(cells.name, int(numbers.min()), int(numbers.max())):
        return None
    why = reason(cells)
    return _code_list(cells, why) if why else None


def _of_zeros_ahead(cells: columns.ColumnCells) -> str:
    return "digits with leading zeros" if cells.zeros_ahead else ""


def _of_name(cells: columns.ColumnCells) -> str:
    return "digits, and by its name no quantity" if columns.names_a_code(cells.name) else ""


def _of_one_length(cells: columns.ColumnCells) -> str:
    assert cells.texts is not None
    lengths = cells.texts.str.len()
    rows = len(cells.known)
    several = rows >= columns.FEWEST_KEYS and cells.distinct <= rows // 2
    rounded = cells.texts.str.endswith("0").all()
    alike = lengths.nunique() == 1 and several and not rounded
    return f"always {lengths.iloc[0]} digits, each value in several rows" if alike else ""


def _code_list(cells: columns.ColumnCells, reason: str) -> columns.Guess:
    why = (
        f"{reason}: taken for codes; declare the public list or {{pattern: ...}}, type text if it "
        "names a person or row, integer if it is a quantity"
    )
    values = sorted(cells.known.unique().tolist())
    return columns.Guess({"type": "categorical", "values": values}, why + _tree_words(values))


def _tree_words(values: Sequence[object]) -> str:
    """A tree by prefixes, as a further clause; empty where values do not look like one of codes."""
    lengths = prefix_lengths([str(value) for value in values])
    if not lengths:
        return ""
    return (
        f"; for a tree of codes, such as a classification, declare it too: hierarchy: {lengths}, "
        "lengths of prefixes, or {file: NAME} with CODE,PARENT lines"
    )


def _long_digits(cells: columns.ColumnCells) -> columns.Guess | None:
    """Digits too long for a whole number: a key where nearly each row has its own, else codes."""
    if cells.match(_DIGITS):
        return None
    if cells.distinct < max(_NEARLY_ALL * len(cells.known), columns.FEWEST_KEYS):
        return _code_list(cells, f"digits, some more than {MOST_PATTERN_DIGITS}")
    pattern = f"{{{10 ** (MOST_PATTERN_DIGITS - 1)}..{'9' * MOST_PATTERN_DIGITS}}}"
    return columns.Guess({"type": "text", "pattern": pattern, **cells.stored_as}, ROW)


def _prefixed_key(cells: columns.ColumnCells) -> columns.Guess | None:
    if not cells.is_text or not (cells.unique or cells.are_persons):
        return None
    parts = cells.known.str.extract(f"^{_PREFIXED}$")
    if parts[0].nunique() > 1:
        return None
    lengths = parts[1].str.len()
    width = int(lengths.max())
    start = "0" * width if lengths.nunique() == 1 else "0"
    pattern = f"{parts[0].iloc[0]}{{{start}..{'9' * width}}}"
    return columns.Guess(
        {"type": "text", "pattern": pattern}, _PERSON if cells.are_persons else ROW
    )


def _free_text(cells: columns.ColumnCells) -> columns.Guess | None:
    many = len(cells.known) >= columns.FEWEST_KEYS and cells.distinct >= _NEARLY_ALL * len(
        cells.known
    )
    if not cells.is_text or not (many or cells.are_persons):
        return None
    free = (
        "a text of its own in nearly each row: not modelled, synthetic rows get neutral keys; "
        "categorical with a public list, or ignore, may be better"
    )
    pattern = f"KEY{{{'0' * 8}1..{'9' * 9}}}"
    return columns.Guess(
        {"type": "text", "pattern": pattern}, _PERSON if cells.are_persons else free
    )


def _pairs_of_years(cells: columns.ColumnCells) -> columns.Guess | None:
    """Years and those after them, as of schools and of accounts, which are no months."""
    if not cells.is_text or cells.texts is None:
        return None
    years = cells.texts.str.extract("([0-9]{2}).([0-9]{2})$").astype("int64")
    pairs = ((years[0] + 1) % 100 == years[1]).all()
    return _free_text(cells) or _listed(cells) if pairs else None


def _listed(cells: columns.ColumnCells) -> columns.Guess:
    """All texts that occur, unordered."""
    values = sorted(cells.known.astype("str").unique())
    why = "texts; all that occur: declare the public list, and ordinal if they have an order"
    if len(values) == 1:
        why = "one text alone: declare what else it may be, or put it in ignore"
    elif len(values) > _LISTED_WITHOUT_REMARK:
        why = f"{len(values)} texts{_remark_on_list(values)}{_tree_words(values)}"
    return columns.Guess({"type": "categorical", "values": values}, why)


def _remark_on_list(values: list[str]) -> str:
    """What a long list of texts may be instead."""
    beside = {value: unit for value in values if (unit := unit_beside(value))}
    units = sorted({unit.after.strip() for unit in beside.values()} - {""})
    before = {unit.before.strip() for unit in beside.values()}
    if len(beside) >= _MOSTLY * len(values) and len(before) == 1:
        word = before.pop()
        if units or word in CURRENCIES:
            named = " and ".join(f"'{unit}'" for unit in units[:3]) or f"'{word}'"
            return f", nearly all of them numbers with {named}: write the numbers alone"
        return (
            ", all of them one word and a number: type text with a pattern if they name "
            "persons or rows, else the public list as {pattern: ...} or {file: NAME}"
        )
    marks = [value for value in values if unit_beside(value.strip()) != NO_UNIT]
    if len(marks) <= _MOST_MARKS:
        named = " and ".join(f"'{mark}'" for mark in marks)
        return f", all but {named} numbers: write a number in its place, and make it special"
    return (
        "; give the public list as {file: NAME}, type text with a pattern if they name "
        "persons or rows, or ignore free text"
    )


@dataclass(frozen=True)
class Case:
    """A way to write a column, and what it is read as.

    ``pattern`` is the regular expression of all its different texts, empty for values of any
    storage. The ``example`` has cells with ``|`` between them, in each ``{n}`` a number that counts
    up, under the ``name`` of a column; it is empty where only Parquet stores such cells.
    """

    pattern: str
    reading: Callable[[columns.ColumnCells], columns.Guess | None]
    example: str
    name: str = "x"

    def read(self, cells: columns.ColumnCells) -> columns.Guess | None:
        """What the cells are read as; None if they are not of this case."""
        fits = not self.pattern or cells.match(self.pattern)
        return self.reading(cells) if fits else None


_DIGITS = "[0-9]{1,18}"
_PREFIXED = rf"([^{{}}]*?)([0-9]{{1,{MOST_PATTERN_DIGITS}}})"

CASES = (
    Case("", _ordered, ""),
    Case("", _native_flag, ""),
    Case("|".join(map(re.escape, chain.from_iterable(_WORDS))), _two_words, "ja|nein"),
    Case("[01]", _one_flag, "1"),
    Case(_DIGITS, _numbered_person, "{n}|{n}", "userId"),
    Case(_DIGITS, _numbered_row, "{n}7", "id"),
    Case("(?:19|20)[0-9]{6}", _compact_date, "20240131|20231224"),
    Case(_DIGITS, partial(_codes, reason=_of_zeros_ahead), "00501|99950"),
    Case(_DIGITS, partial(_codes, reason=_of_name), "1|2|3", "status_code"),
    Case(f"[0-9]{{{_CODE_DIGITS},18}}", partial(_codes, reason=_of_one_length), "35013|35026"),
    Case("[0-9]+", _long_digits, "1111111111111111111111|22222222222222222222"),
    Case("", guess_whole, "{n}|1{n}|-{n}"),
    Case("", guess_decimal, "{n}.5|-1.25"),
    Case(times.CLOCK_OF_TWELVE, times.guess_clock, "8:{n} AM|11:05 PM"),
    Case(times.CLOCK, times.guess_clock, "08:15|27:15"),
    Case("[0-9]{4}[-/][0-9]{2}", _pairs_of_years, "2009-10|2010-11"),
    Case("", times.guess_date, "03.04.2020|25.06.2021"),
    Case("", times.guess_partial_date, "2021-03-15|2021-03|2021-04-01"),
    Case("", times.guess_moment, "2024-05-06T07:15:00Z|2024-05-07T12:30:00Z"),
    Case("", ordered_texts, "jan|Feb.|December"),
    Case(_PREFIXED, _prefixed_key, "P-{n}", "Pat.-Nr."),
    Case("", _free_text, "remark of {n} words"),
    Case("", _listed, "Rome|Oslo"),
)
"""The ways to write a column; the first that fits decides."""


def guess(cells: columns.ColumnCells) -> columns.Guess:
    """An attribute that all known cells fit, with bounds that lie outwards."""
    guess = next(guess for case in CASES if (guess := case.read(cells)))
    keys = {**guess.keys, **cells.nullable}
    if cells.nullable and guess.keys["type"] == "text":
        keys["missing_share"] = _missing_share(cells)
    if cells.missing is not None:
        keys["missing"] = cells.missing
    keys |= {} if "dtype" in guess.keys else _unusual_dtype(cells)
    remark = _remark(cells)
    why = f"{guess.why}; {remark}" if remark else guess.why
    if cells.stored is not None:
        keys, why = times.in_native_times(keys, why, cells.stored)
    return columns.Guess({**keys, "provenance": DATA_DERIVED}, why)


def _missing_share(cells: columns.ColumnCells) -> float:
    """How many of the rows lack a key: of it alone no model is told that it may be missing."""
    share = round(1 - len(cells.known) / len(cells.written), _SHARE_PLACES)
    return max(share, 10**-_SHARE_PLACES)


def _unusual_dtype(cells: columns.ColumnCells) -> columns.Keys:
    """The pandas dtype where it is not the usual one of its type, so that a release has it too."""
    name = str(cells.known.dtype)
    unusual = re.fullmatch(r"U?Int(8|16|32)|UInt64|float32|datetime64\[(ms|us|ns)\]|category", name)
    if unusual is None:
        return {}
    return {"dtype": name if cells.nullable or name[0] not in "IU" else name.lower()}


_NARROW: tuple[tuple[str, AnyAttribute], ...] = (
    *(("whole numbers", ANY_WHOLE), ("numbers", ANY_NUMBER)),
    *(("dates", times.ANY_DATE), ("moments", times.ANY_MOMENT)),
)


def _remark(cells: columns.ColumnCells) -> str:
    """A hint where a few odd cells decided the guess, else the empty text.

    The hint says that nearly all of the values are of a narrower type.
    """
    known = cells.known
    if not cells.is_text or cells.zeros_ahead > _MOST_ODD:
        return ""
    few = (odd for odd in _misfits(cells) if odd[1] <= _MOST_ODD * len(known))
    words, count = next(few, ("", 0))
    return f"all but {count:,} of {len(known):,} values are {words}" if count else ""


def _misfits(cells: columns.ColumnCells) -> Iterator[tuple[str, int]]:
    """Narrow types, the narrowest first, and how many of the values are of another."""
    known = cells.known
    different = set(known)
    for pair in _WORDS:
        words = " or ".join(word for word in pair if word in different)
        yield words, int((~known.isin(pair)).sum())
    for words, attribute in _NARROW:
        yield words, int(parse(cells.known_plain, attribute)[1].sum())
