"""Constraints as text, both ways: denial rules, functional dependencies, keys.

    deny   t1.gain > t2.gain and t1.loss > t2.loss   two rows; names with dashes need no quotes
           t.age < 18 and t.income = '>50K'          one row
           t1.`my col` != t2.`my col`                other names in backquotes, `` for a backquote
           t.left is not missing and t.status = 'a'  missing or not; null is another word for it
           t.end > t.start + 30 days                 days, months, years, plain numbers; or less
           day of t.seen < t.born                    a moment without its time of day
    check  t.left is missing exactly if t.status = 'a'
           t.q7 > 0 only if t.q6 = 'yes'             exactly if, if, only if; and, or on the right
    fd     zip, street name -> city, state           one rule for each attribute on the right
    key    a list of names                           no two rows agree on all

Constants: text and dates in single quotes ('' for a quote), numbers, true, false.

Back from predicates, a denial constraint may have the shape of a functional dependency, of a key,
or of an order rule.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from cloister.constraints.denial import Cell, Constant, DenialConstraint, Op, Predicate
from cloister.constraints.offsets import Offset, OffsetUnit
from cloister.errors import ConstraintError
from cloister.schema.declarations import BARE_NAME, quote

_NAME = rf"(?:`(?:[^`]|``)+`|{BARE_NAME})"
_SIDE_NAME = r"(?:`(?:[^`]|``)+`|(?:(?!->)[^\s,`])+(?:\s+(?:(?!->)[^\s,`])+)*)"
_SIDE = rf"{_SIDE_NAME}(?:\s*,\s*{_SIDE_NAME})*"
_DEPENDENCY = re.compile(rf"\s*({_SIDE})\s*->\s*({_SIDE})\s*")
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<cell>[tT](?P<row>[12]?)\.(?P<attribute>{_NAME}))
      | (?P<text>'(?:[^']|'')*')
      | (?P<sign>[-+\u2212])
      | (?P<number>(?:\d{{1,300}}(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])
      | (?P<op><=|>=|!=|<>|==|[=<>≠≤≥])
      | (?P<word>\w+)
    )\s*""",
    re.VERBOSE,
)
_OPS = {"==": Op.EQ, "<>": Op.NE, "≠": Op.NE, "≤": Op.LE, "≥": Op.GE} | {op.value: op for op in Op}
_REMEDY = (
    "write rules such as t1.a = t2.a and t1.b < 5, text in single quotes, odd names in backquotes"
)

_EITHER = (
    'joins conditions by or, and a deny knows and alone; write two rules, {deny: "A"} and '
    '{deny: "B"}, in place of {deny: "A or B"}'
)

_CHECK = re.compile(
    r"""(?P<left>(?:'(?:[^']|'')*'|`(?:[^`]|``)*`|[^'`])*?)\s+
        (?P<word>exactly\s+if|if\s+and\s+only\s+if|only\s+if|if)\s+(?P<right>.*)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_SENTENCE = (
    "write one such as t.left is missing exactly if t.status = 'active', one comparison, then "
    "exactly if, if or only if, then comparisons joined by and, or by or; or t.month, t.day is a "
    "date"
)


class _Word(Enum):
    """The words of rules."""

    AND = "and"
    OR = "or"
    IS = "is"
    NOT = "not"
    MISSING = "missing"
    NULL = "null"
    DAY = "day"
    OF = "of"


class _Sign(Enum):
    """A sign before a number."""

    PLUS = 1
    MINUS = -1


_UNITS = {
    word: unit for unit in OffsetUnit if unit for word in (unit.value, unit.removesuffix("s"))
}
"""The units of offsets by their words."""

_Token = Cell | Op | Constant | _Word | _Sign | OffsetUnit
"""A piece of a rule."""


def parse_denial(text: str, name: str, hard: bool = True) -> DenialConstraint:
    """The constraint that forbids the condition ``text``.

    Raises:
        ConstraintError: the text does not follow the grammar at the top of this module.
    """
    if _Word.OR in _tokens(text, name):
        raise ConstraintError(f"constraint '{name}': {_EITHER}")
    predicates = _predicates(text, name)
    return DenialConstraint(name, on_first_row(predicates), hard)


def parse_check(
    text: str, name: str, nullable: Collection[str], hard: bool = True
) -> tuple[DenialConstraint, ...]:
    """The constraints that say when a comparison holds, called ``name_1``, ``name_2``, ...

    A condition does not hold where what it compares is missing, as those of ``nullable`` may be.

    Raises:
        ConstraintError: the text does not follow the grammar at the top of this module.
    """
    match = _CHECK.fullmatch(text.strip())
    head = _predicates(match["left"], name) if match else ()
    if match is None or len(head) != 1:
        raise ConstraintError(f"constraint '{name}': cannot read '{text}'; {_SENTENCE}")
    right, either = parse_condition(match["right"], name)
    singly, together = [(predicate,) for predicate in right], [right]
    met, unmet = (singly, together) if either else (together, singly)
    word, denied = match["word"].lower(), list[tuple[Predicate, ...]]()
    if not word.startswith("only"):
        denied += [(*part, *rest) for part in met for rest in _none_holding(head, nullable)]
    if word != "if":
        denied += [(head[0], *rest) for part in unmet for rest in _none_holding(part, nullable)]
    rules = [DenialConstraint(name, on_first_row(predicates), hard) for predicates in denied]
    if any(rule.arity > 1 for rule in rules):
        raise ConstraintError(f"constraint '{name}': is on two rows; write t. for the one row")
    if len(rules) == 1:
        return (rules[0],)
    return tuple(replace(rule, name=f"{name}_{number}") for number, rule in enumerate(rules, 1))


def parse_condition(text: str, name: str) -> tuple[tuple[Predicate, ...], bool]:
    """Predicates joined by ``and``, or by ``or``; and whether it is ``or``.

    Raises:
        ConstraintError: the text does not follow the grammar at the top of this module.
    """
    tokens = _tokens(text, name)
    either = _Word.OR in tokens
    if either and _Word.AND in tokens:
        raise ConstraintError(f"constraint '{name}': has both and and or; {_SENTENCE}")
    joined: list[_Token] = [_Word.AND if token is _Word.OR else token for token in tokens]
    return tuple(_predicate(clause, name) for clause in _clauses(joined)), either


def _none_holding(
    predicates: tuple[Predicate, ...], nullable: Collection[str]
) -> Iterator[tuple[Predicate, ...]]:
    """The ways in which none of some predicates holds, as conjunctions.

    Each fails on values that are there, or because one that it compares is missing.
    """
    yield tuple(predicate.negated for predicate in predicates)
    compared = {
        cell.plain: None
        for predicate in predicates
        if predicate.right is not None
        for cell in predicate.cells
        if cell.attribute in nullable
    }
    for cell in compared:
        rest = tuple(
            p for p in predicates if p.right is None or cell not in {c.plain for c in p.cells}
        )
        gone = Predicate(cell, Op.EQ, None)
        for subset in _none_holding(rest, nullable) if rest else ((),):
            yield (gone, *subset)


def format_denial(constraint: DenialConstraint) -> str:
    """The text that ``parse_denial`` reads as these predicates; dates come back as text."""
    single = constraint.arity == 1
    return " and ".join(_format_predicate(p, single) for p in constraint.predicates)


def parse_dependency(text: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Left and right attributes of ``a, b -> c``.

    Raises:
        ConstraintError: the text has another form, or an attribute appears twice.
    """
    match = _DEPENDENCY.fullmatch(text)
    if match is None:
        raise ConstraintError(
            f"constraint '{name}': cannot read the dependency '{text}'; "
            "write a, b -> c, names with a comma or an arrow in backquotes"
        )
    left, right = (
        tuple(unquote(part) for part in re.findall(_SIDE_NAME, side)) for side in match.groups()
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
    return tuple(Predicate(replace(p.left, row=1), p.op, _first(p.right)) for p in predicates)


def read_number(text: str) -> int | float:
    """A whole number, or a decimal one if written with a point or an exponent."""
    return float(text) if re.search(r"[.eE]", text) else int(text)


def format_text(value: str | dt.date) -> str:
    """Text or a date in single quotes."""
    plain = value if isinstance(value, str) else value.isoformat()
    return "'" + plain.replace("'", "''") + "'"


def _first(operand: Cell | Constant | None) -> Cell | Constant | None:
    return replace(operand, row=1) if isinstance(operand, Cell) else operand


def _agree(attribute: str) -> Predicate:
    return Predicate(Cell(1, attribute), Op.EQ, Cell(2, attribute))


def _require_distinct(attributes: Sequence[str], name: str) -> None:
    twice = sorted({a for a in attributes if list(attributes).count(a) > 1})
    if twice:
        raise ConstraintError(
            f"constraint '{name}': attribute '{twice[0]}' appears twice; name it once"
        )


def _tokens(text: str, name: str) -> list[_Token]:
    tokens, start = [], 0
    while start < len(text.rstrip()):
        match = _TOKEN.match(text, start)
        if match is None:
            raise ConstraintError(
                f"constraint '{name}': cannot read '{text[start:].strip()}'; {_REMEDY}"
            )
        tokens.append(_token(match, name))
        start = match.end()
    return tokens


def _token(match: re.Match[str], name: str) -> _Token:
    if match["cell"]:
        return Cell(int(match["row"] or 1), unquote(match["attribute"]))
    if match["text"]:
        return match["text"][1:-1].replace("''", "'")
    if match["sign"]:
        return _Sign.PLUS if match["sign"] == "+" else _Sign.MINUS
    if match["number"]:
        return read_number(match["number"])
    if match["op"]:
        return _OPS[match["op"]]
    return _word(match["word"], name)


def _word(word: str, name: str) -> bool | _Word | OffsetUnit:
    words = {"true": True, "false": False} | _UNITS | {member.value: member for member in _Word}
    if word.lower() not in words:
        raise ConstraintError(f"constraint '{name}': cannot read '{word}'; {_REMEDY}")
    return words[word.lower()]


def _clauses(tokens: list[_Token]) -> list[list[_Token]]:
    clauses: list[list[_Token]] = [[]]
    for token in tokens:
        if token is _Word.AND:
            clauses.append([])
        else:
            clauses[-1].append(token)
    return clauses


def _predicates(text: str, name: str) -> tuple[Predicate, ...]:
    return tuple(_predicate(clause, name) for clause in _clauses(_tokens(text, name)))


def _predicate(clause: list[_Token], name: str) -> Predicate:
    match clause:
        case [Cell() as cell, _Word.IS, _Word.MISSING | _Word.NULL]:
            return Predicate(cell, Op.EQ, None)
        case [Cell() as cell, _Word.IS, _Word.NOT, _Word.MISSING | _Word.NULL]:
            return Predicate(cell, Op.NE, None)
    predicate = _comparison(clause)
    if predicate is not None:
        return predicate
    raise ConstraintError(
        f"constraint '{name}': each part compares a cell with a cell or a constant; {_REMEDY}"
    )


def _comparison(clause: list[_Token]) -> Predicate | None:
    """The comparison of two operands, at least one of them a cell; None if it is none."""
    ops = [position for position, token in enumerate(clause) if isinstance(token, Op)]
    if len(ops) != 1:
        return None
    (position,) = ops
    left, right = _operand(clause[:position]), _operand(clause[position + 1 :])
    op = clause[position]
    assert isinstance(op, Op)
    return None if left is None or right is None else compare(left, op, right)


def _operand(tokens: list[_Token]) -> Cell | Constant | None:
    """The cell, with its offset, or the constant of some tokens; None if they are neither."""
    match tokens:
        case [_Word.DAY, _Word.OF, Cell() as cell, *rest]:
            return _offset(replace(cell, whole_day=True), rest)
        case [Cell() as cell, *rest]:
            return _offset(cell, rest)
        case [_Sign() as sign, int() | float() as number] if not isinstance(number, bool):
            return sign.value * number
        case [str() | int() | float() as constant] if not isinstance(constant, OffsetUnit):
            return constant
    return None


def _offset(cell: Cell, tokens: list[_Token]) -> Cell | None:
    """A cell with the offset that some tokens say; None if they say something else."""
    match tokens:
        case []:
            return cell
        case [_Sign() as sign, int() | float() as amount, *unit] if not isinstance(amount, bool):
            units = [
                OffsetUnit.DAYS if word is _Word.DAY else word for word in unit or [OffsetUnit.ONES]
            ]
            if len(units) == 1 and isinstance(units[0], OffsetUnit):
                return replace(
                    cell, offset=Offset(sign.value * amount, units[0]) if amount else None
                )
    return None


def _format_predicate(predicate: Predicate, single: bool) -> str:
    left = _format_operand(predicate.left, single)
    if predicate.right is None:
        return f"{left} is {'' if predicate.op is Op.EQ else 'not '}missing"
    return f"{left} {predicate.op} {_format_operand(predicate.right, single)}"


def _format_operand(operand: Cell | Constant, single: bool) -> str:
    if isinstance(operand, Cell):
        cell = f"t{'' if single else operand.row}.{quote(operand.attribute)}"
        day = f"day of {cell}" if operand.whole_day else cell
        return f"{day} {operand.offset}" if operand.offset else day
    if isinstance(operand, bool):
        return str(operand).lower()
    return repr(operand) if isinstance(operand, int | float) else format_text(operand)


_Same = tuple[str, Op]
"""An attribute and the comparison ``t1.attribute op t2.attribute``."""


@dataclass(frozen=True)
class OrderRule:
    """A rule on two orders: no two rows that agree on ``equal`` satisfy both comparisons.

    They are ``t1.first first_op t2.first`` and ``t1.second second_op t2.second``. ``first_op`` is >
    or >=, ``second_op`` any of <, <=, >, >=.
    """

    equal: tuple[str, ...]
    first: str
    first_op: Op
    second: str
    second_op: Op


def functional_dependency(constraint: DenialConstraint) -> tuple[tuple[str, ...], str] | None:
    """Left attributes and right attribute of a functional dependency, else None.

    The left side is empty when the rule says that a column is constant.
    """
    same = _all_same(constraint)
    differ = [name for name, op in same if op is Op.NE]
    equal = tuple(name for name, op in same if op is Op.EQ)
    if len(differ) != 1 or len(equal) + 1 != len(same) or differ[0] in equal:
        return None
    return equal, differ[0]


def key_attributes(constraint: DenialConstraint) -> tuple[str, ...] | None:
    """The attributes on which no two rows may agree, else None."""
    same = _all_same(constraint)
    return tuple(name for name, _ in same) if same and all(op is Op.EQ for _, op in same) else None


def order_rule(constraint: DenialConstraint) -> OrderRule | None:
    """The constraint as equalities and exactly two order predicates, else None.

    Rows are exchanged so that the first order is > or >=.
    """
    same = _all_same(constraint)
    orders = [(name, op) for name, op in same if op.is_order]
    equal = tuple(name for name, op in same if op is Op.EQ)
    if len(orders) != 2 or len(equal) + 2 != len(same) or len({name for name, _ in orders}) != 2:
        return None
    if orders[0][1] in (Op.LT, Op.LE):
        orders = [(name, op.mirrored) for name, op in orders]
    return OrderRule(equal, *orders[0], *orders[1])


def _all_same(constraint: DenialConstraint) -> tuple[_Same, ...]:
    """All predicates as comparisons of one attribute between the two rows, without repetitions.

    Empty if one predicate has another form.
    """
    same = [_same(predicate) for predicate in constraint.predicates]
    return tuple(dict.fromkeys(s for s in same if s)) if all(same) else ()


def _same(predicate: Predicate) -> _Same | None:
    left, right = predicate.left, predicate.right
    if not isinstance(right, Cell) or left != left.plain or right != left.exchanged:
        return None
    return left.attribute, predicate.op if left.row == 1 else predicate.op.mirrored
