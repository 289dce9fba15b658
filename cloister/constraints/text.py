"""Constraints as text, both ways: denial rules, functional dependencies, keys.

    deny   t1.gain > t2.gain and t1.loss > t2.loss   two rows; names with dashes need no quotes
           t.age < 18 and t.income = '>50K'          one row
           t1.`my col` != t2.`my col`                other names in backquotes, `` for a backquote
    fd     zip, street -> city, state                one rule for each attribute on the right
    key    a list of names                           no two rows agree on all

Constants: text and dates in single quotes ('' for a quote), numbers, true, false.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

from cloister.constraints.denial import Cell, Constant, DenialConstraint, Op, Predicate
from cloister.errors import ConstraintError

_BARE = r"\w(?:[\w.]|-(?!>))*"
_NAME = rf"(?:`(?:[^`]|``)+`|{_BARE})"
_NAMES = rf"{_NAME}(?:\s*,\s*{_NAME})*"
_DEPENDENCY = re.compile(rf"\s*({_NAMES})\s*->\s*({_NAMES})\s*")
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<cell>[tT](?P<row>[12]?)\.(?P<attribute>{_NAME}))
      | (?P<text>'(?:[^']|'')*')
      | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])
      | (?P<op><=|>=|!=|<>|==|[=<>≠≤≥])
      | (?P<word>\w+)
    )\s*""",
    re.VERBOSE,
)
_OPS = {"==": Op.EQ, "<>": Op.NE, "≠": Op.NE, "≤": Op.LE, "≥": Op.GE} | {op.value: op for op in Op}
_REMEDY = (
    "write rules such as t1.a = t2.a and t1.b < 5, text in single quotes, odd names in backquotes"
)

_Token = Cell | Op | Constant | None
"""A piece of a rule; None is the word ``and``."""


def parse_denial(text: str, name: str, hard: bool = True) -> DenialConstraint:
    """The constraint that forbids the condition ``text``.

    Raises:
        ConstraintError: the text does not follow the grammar at the top of this module.
    """
    predicates = tuple(_predicate(clause, name) for clause in _clauses(_tokens(text, name)))
    return DenialConstraint(name, on_first_row(predicates), hard)


def format_denial(constraint: DenialConstraint) -> str:
    """The text that ``parse_denial`` reads as these predicates; dates come back as text."""
    single = constraint.arity == 1
    return " and ".join(
        f"{_format_operand(p.left, single)} {p.op} {_format_operand(p.right, single)}"
        for p in constraint.predicates
    )


def parse_dependency(text: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Left and right attributes of ``a, b -> c``.

    Raises:
        ConstraintError: the text has another form, or an attribute appears twice.
    """
    match = _DEPENDENCY.fullmatch(text)
    if match is None:
        raise ConstraintError(
            f"constraint '{name}': cannot read the dependency '{text}'; "
            "write a, b -> c, odd names in backquotes"
        )
    left, right = (
        tuple(unquote(part) for part in re.findall(_NAME, side)) for side in match.groups()
    )
    _require_distinct(left + right, name)
    return left, right


def format_dependency(left: Sequence[str], right: Sequence[str]) -> str:
    """The text that ``parse_dependency`` reads as these attributes."""
    return f"{', '.join(map(quote, left))} -> {', '.join(map(quote, right))}"


def dependency(name: str, left: Sequence[str], right: str, hard: bool = True) -> DenialConstraint:
    """The constraint that no two rows agree on ``left`` and differ on ``right``."""
    return DenialConstraint(
        name, (*map(_agree, left), Predicate(Cell(1, right), Op.NE, Cell(2, right))), hard
    )


def key(name: str, attributes: Sequence[str], hard: bool = True) -> DenialConstraint:
    """The constraint that no two rows agree on all ``attributes``.

    Raises:
        ConstraintError: no attribute, or one appears twice.
    """
    if not attributes:
        raise ConstraintError(f"constraint '{name}': a key needs at least one attribute")
    _require_distinct(attributes, name)
    return DenialConstraint(name, tuple(map(_agree, attributes)), hard)


def quote(name: str) -> str:
    """An attribute name as the text forms write it: bare, or in backquotes."""
    return name if re.fullmatch(_BARE, name) else "`" + name.replace("`", "``") + "`"


def unquote(name: str) -> str:
    """The attribute name of a bare or backquoted text."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def compare(left: Cell | Constant, op: Op, right: Cell | Constant) -> Predicate | None:
    """The comparison with a cell on its left; None if both sides are constants."""
    if isinstance(left, Cell):
        return Predicate(left, op, right)
    return Predicate(right, op.mirrored, left) if isinstance(right, Cell) else None


def on_first_row(predicates: tuple[Predicate, ...]) -> tuple[Predicate, ...]:
    """The same predicates, with a rule on the second row alone moved to the first."""
    if any(cell.row == 1 for p in predicates for cell in p.cells):
        return predicates
    return tuple(Predicate(Cell(1, p.left.attribute), p.op, _first(p.right)) for p in predicates)


def read_number(text: str) -> int | float:
    """A whole number, or a decimal one if written with a point or an exponent."""
    return float(text) if re.search(r"[.eE]", text) else int(text)


def format_text(value: str | dt.date) -> str:
    """Text or a date in single quotes."""
    plain = value if isinstance(value, str) else value.isoformat()
    return "'" + plain.replace("'", "''") + "'"


def _first(operand: Cell | Constant) -> Cell | Constant:
    return Cell(1, operand.attribute) if isinstance(operand, Cell) else operand


def _agree(attribute: str) -> Predicate:
    return Predicate(Cell(1, attribute), Op.EQ, Cell(2, attribute))


def _require_distinct(attributes: Sequence[str], name: str) -> None:
    twice = sorted({a for a in attributes if list(attributes).count(a) > 1})
    if twice:
        raise ConstraintError(
            f"constraint '{name}': attribute '{twice[0]}' appears twice; name it once"
        )


def _tokens(text: str, name: str) -> list[_Token]:
    tokens, place = [], 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ConstraintError(
                f"constraint '{name}': cannot read '{text[place:].strip()}'; {_REMEDY}"
            )
        tokens.append(_token(match, name))
        place = match.end()
    return tokens


def _token(match: re.Match[str], name: str) -> _Token:
    if match["cell"]:
        return Cell(int(match["row"] or 1), unquote(match["attribute"]))
    if match["text"]:
        return match["text"][1:-1].replace("''", "'")
    if match["number"]:
        return read_number(match["number"])
    if match["op"]:
        return _OPS[match["op"]]
    return _word(match["word"], name)


def _word(word: str, name: str) -> bool | None:
    words = {"and": None, "true": True, "false": False}
    if word.lower() not in words:
        raise ConstraintError(f"constraint '{name}': cannot read '{word}'; {_REMEDY}")
    return words[word.lower()]


def _clauses(tokens: list[_Token]) -> list[list[_Token]]:
    clauses: list[list[_Token]] = [[]]
    for token in tokens:
        if token is None:
            clauses.append([])
        else:
            clauses[-1].append(token)
    return clauses


def _predicate(clause: list[_Token], name: str) -> Predicate:
    match clause:
        case [left, Op() as op, right] if not isinstance(left, Op) and not isinstance(right, Op):
            predicate = compare(left, op, right)  # type: ignore[arg-type]
            if predicate is not None:
                return predicate
    raise ConstraintError(
        f"constraint '{name}': each part compares a cell with a cell or a constant; {_REMEDY}"
    )


def _format_operand(operand: Cell | Constant, single: bool) -> str:
    if isinstance(operand, Cell):
        return f"t{'' if single else operand.row}.{quote(operand.attribute)}"
    if isinstance(operand, bool):
        return str(operand).lower()
    return repr(operand) if isinstance(operand, int | float) else format_text(operand)
