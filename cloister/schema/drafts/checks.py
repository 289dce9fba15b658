"""CHECK constraints of a database, as far as a spec can say them: values, bounds, orders.

The texts are those of SQLite, as they were written, and of PostgreSQL, which writes them anew: with
types behind constants, and lists as arrays. A check holds where it is unknown, so it says nothing
of cells that are missing. What is not understood is left to a person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_CAST = re.compile(
    r"::(?:character varying|double precision|timestamp with(?:out)? time zone|\w+)"
    r"(?:\(\d+(?:,\s*\d+)?\))?(?:\[\])?",
    re.IGNORECASE,
)
_NAME = r'(?:"[^"]+"|`[^`]+`|[A-Za-z_]\w*)'
_CONSTANT = r"(?:'(?:[^']|'')*'|-?\d+(?:\.\d+)?)"
_ENCLOSED = re.compile(rf"(?<!\w)\(\s*({_NAME}|{_CONSTANT})\s*\)")
_LIST = rf"{_CONSTANT}(?:\s*,\s*{_CONSTANT})*"
_IN = re.compile(
    rf"({_NAME})\s*(?:IN\s*\(\s*({_LIST})\s*\)|=\s*ANY\s*\(+\s*ARRAY\s*\[\s*({_LIST})\s*\]\s*\)+)",
    re.IGNORECASE,
)
_BETWEEN = re.compile(rf"({_NAME})\s+BETWEEN\s+({_CONSTANT})\s+AND\s+({_CONSTANT})", re.IGNORECASE)
_COMPARED = re.compile(rf"({_NAME}|{_CONSTANT})\s*(<=|>=|<|>)\s*({_NAME}|{_CONSTANT})")
_PRESENT = re.compile(rf"{_NAME}\s+IS\s+NOT\s+NULL", re.IGNORECASE)
_OR_MISSING = re.compile(rf"({_NAME})\s+IS\s+NULL\s+OR\s+(.*)", re.IGNORECASE | re.DOTALL)
_TOKEN = re.compile(rf"{_CONSTANT}|{_NAME}|\S", re.IGNORECASE)
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}

Constant = str | int | float


@dataclass
class CheckFacts:
    """What checks say of columns by name: listed ``values``, and the ``least`` and ``greatest``.

    ``open_ends`` are the columns that do not reach these, with ``min`` or ``max``; ``orders`` two
    columns and the comparison that holds between them; ``unread`` texts that say something else.
    """

    values: dict[str, list[Constant]] = field(default_factory=dict)
    least: dict[str, Constant] = field(default_factory=dict)
    greatest: dict[str, Constant] = field(default_factory=dict)
    open_ends: set[tuple[str, str]] = field(default_factory=set)
    orders: list[tuple[str, str, str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read_checks(checks: Sequence[Mapping[str, object]]) -> CheckFacts:
    """The facts of checks as SQLAlchemy's inspector describes them: ``sqltext`` and ``name``."""
    facts = CheckFacts()
    for check in checks:
        text = str(check["sqltext"])
        terms = _terms(_plain(text))
        if not all(_read(term, CheckFacts()) for term in terms):
            named = f"check {check['name']}" if check.get("name") else "check"
            facts.unread.append(f"{named} is not kept: {' '.join(text.split())}")
            continue
        for term in terms:
            _read(term, facts)
    return facts


def _plain(text: str) -> str:
    """A check without types and without brackets around single names and constants."""
    text, before = _CAST.sub("", text), ""
    while text != before:
        before, text = text, _ENCLOSED.sub(r"\1", text)
    return text


def _terms(text: str) -> list[str]:
    """The conditions that a check joins by AND, but for that of BETWEEN, without outer brackets."""
    terms, depth, between, start = list[str](), 0, False, 0
    for token in _TOKEN.finditer(text):
        word = token[0].upper()
        depth += (word == "(") - (word == ")")
        if depth or word not in ("AND", "OR", "BETWEEN"):
            continue
        if word == "OR":
            return [_stripped(text)]
        if word == "AND" and not between:
            terms.append(text[start : token.start()])
            start = token.end()
        between = word == "BETWEEN"
    last = text[start:]
    if not terms:
        stripped = _stripped(last)
        return [stripped] if stripped == last.strip() else _terms(stripped)
    return [each for term in (*terms, last) for each in _terms(term)]


def _stripped(text: str) -> str:
    """A condition without brackets around all of it."""
    text = text.strip()
    if not text.startswith("("):
        return text
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] == "(") - (token[0] == ")")
        if not depth:
            return text[1:-1].strip() if token.end() == len(text) else text
    return text


def _read(term: str, facts: CheckFacts) -> bool:
    """Whether a condition is understood, which is then among the facts."""
    if _PRESENT.fullmatch(term):
        return True
    if match := _OR_MISSING.fullmatch(term):
        return all(_read(each, facts) for each in _terms(match[2]))
    if match := _IN.fullmatch(term):
        constants = re.findall(_CONSTANT, match[2] or match[3])
        facts.values[_name(match[1])] = [_constant(each) for each in constants]
        return True
    if match := _BETWEEN.fullmatch(term):
        bounds = ((">=", match[2]), ("<=", match[3]))
        return all(_compare(match[1], op, constant, facts) for op, constant in bounds)
    match = _COMPARED.fullmatch(term)
    return match is not None and _compare(match[1], match[2], match[3], facts)


def _compare(left: str, op: str, right: str, facts: CheckFacts) -> bool:
    if re.fullmatch(_CONSTANT, left):
        left, op, right = right, _MIRRORED[op], left
    if re.fullmatch(_CONSTANT, left):
        return False
    name = _name(left)
    if re.fullmatch(_CONSTANT, right) is None:
        facts.orders.append((name, op, _name(right)))
        return True
    ends, end = (facts.least, "min") if op[0] == ">" else (facts.greatest, "max")
    ends[name] = _constant(right)
    if len(op) == 1:
        facts.open_ends.add((name, end))
    return True


def _name(text: str) -> str:
    return text[1:-1] if text[0] in '"`' else text


def _constant(text: str) -> Constant:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return float(text) if "." in text else int(text)
