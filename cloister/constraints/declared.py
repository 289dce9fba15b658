"""Constraints as a spec declares them or HoloClean writes them, and the denials that they mean.

An entry without a name is named by its place, ``constraint_1``; those of a file by the file,
``adult_1``; those of a dependency with several attributes on the right, and of a check that stands
for several denials, ``name_1``, ``name_2``.

Files have the form of HoloClean, one constraint a line; blank lines and # lines are ignored.

    t1&t2&EQ(t1.zip,t2.zip)&IQ(t1.city,t2.city)      no two rows agree on zip and differ on city
    t1&LT(t1.age,'18')&EQ(t1.income,'>50K')          no row with both

Constants are in single or double quotes (doubled inside), numbers too: their type is that of the
column that they are compared with. Names have no quotes; those with a comma, an ampersand or a lone
bracket are in backquotes, which HoloClean lacks.

Source: HoloClean (Rekatsinas, Chu, Ilyas, Re; VLDB 2017), its denial constraint files.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from cloister.constraints import dates, text
from cloister.constraints.denial import Cell, Constant, DenialConstraint, KnownFigure, Op, Predicate
from cloister.errors import ConstraintError, StorageError
from cloister.schema.declarations import ConstraintDeclaration, KnownSoftness
from cloister.schema.domain import Domain
from cloister.schema.sources.files_and_urls import read_small_file, reason_of

_MOST_BYTES = 1_000_000
"""Bytes of a constraint file at most: a thousand times the longest that was published."""

_OPS = {"EQ": Op.EQ, "IQ": Op.NE, "LTE": Op.LE, "GTE": Op.GE, "LT": Op.LT, "GT": Op.GT}
_NAMES = {op: name for name, op in _OPS.items()}
_ANY_OP = "|".join(_OPS)
_BARE = r"(?!\s)(?:[^`,&()\r\n]|\([^`,&()\r\n]*\))+(?<!\s)"
_CELL = rf"t[12]\.(?:`(?:[^`]|``)+`|{_BARE})"
_CONSTANT = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_OPERAND = rf"({_CELL}|{_CONSTANT})"
_PREDICATE = re.compile(
    rf"&\s*({_ANY_OP})\(\s*{_OPERAND}\s*,\s*{_OPERAND}\s*\)\s*(?=$|&\s*(?:{_ANY_OP})\()"
)
_ROWS = re.compile(r"\s*(t1\s*&\s*t2|t[12])\s*(?=&)")


def read_holoclean(path: Path, name: str, hard: bool = True) -> tuple[DenialConstraint, ...]:
    """The constraints of a file, called ``name_1``, ``name_2``, ... in order.

    Raises:
        ConstraintError: a line is not in the HoloClean form; names file and line number.
        StorageError: the file cannot be read.
    """
    try:
        lines = read_small_file(path, _MOST_BYTES).decode("utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "not UTF-8 text"
        raise StorageError(
            f"constraint file '{path}' cannot be read ({reason}); check the path"
        ) from None
    numbered = [
        (number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and line.strip()[0] != "#"
    ]
    return tuple(
        DenialConstraint(
            f"{name}_{position}", parse_holoclean(line, f"{path}, line {number}"), hard
        )
        for position, (number, line) in enumerate(numbered, 1)
    )


def parse_holoclean(line: str, location: str) -> tuple[Predicate, ...]:
    """The predicates of one line; ``location`` names file and line in errors.

    Raises:
        ConstraintError: the line is not in the HoloClean form.
    """
    line = line.strip()
    rows = _ROWS.match(line)
    if rows is None:
        raise _unreadable(location, line)
    predicates, start = [], rows.end()
    while start < len(line):
        match = _PREDICATE.match(line, start)
        if match is None:
            raise _unreadable(location, line[start:])
        predicates.append(_predicate(match, location))
        start = match.end()
    _require_declared(predicates, rows[1], location)
    return text.on_first_row(tuple(predicates))


def format_holoclean(constraint: DenialConstraint) -> str:
    """The line that ``parse_holoclean`` reads as these predicates; constants come back as text.

    Raises:
        ConstraintError: a name or constant holds a line break, which a line cannot, or a predicate
            is ``is missing``, which the form lacks.
    """
    rows = "t1" if constraint.arity == 1 else "t1&t2"
    compared = [(p.op, p.left, p.right) for p in constraint.predicates if p.right is not None]
    if len(compared) < len(constraint.predicates):
        raise ConstraintError(
            f"constraint '{constraint.name}': 'is missing' has no HoloClean form; use deny"
        )
    if any(cell != cell.plain for p in constraint.predicates for cell in p.cells):
        raise ConstraintError(
            f"constraint '{constraint.name}': offsets and 'day of' have no HoloClean form; use deny"
        )
    predicates = (
        f"{_NAMES[op]}({_operand(left)},{_operand(right)})" for op, left, right in compared
    )
    line = "&".join([rows, *predicates])
    if "\n" in line or "\r" in line:
        raise ConstraintError(
            f"constraint '{constraint.name}': a line break does not fit the HoloClean form; "
            "use deny"
        )
    return line


def _predicate(match: re.Match[str], location: str) -> Predicate:
    op, left, right = match.groups()
    predicate = text.compare(_read(left), _OPS[op], _read(right))
    if predicate is None:
        raise ConstraintError(
            f"{location}: {op} compares two constants; one side must be t1.name or t2.name"
        )
    return predicate


def _read(operand: str) -> Cell | Constant:
    if operand[0] == "t":
        return Cell(int(operand[1]), text.unquote(operand[3:].strip()))
    if operand[0] in "'\"":
        return operand[1:-1].replace(operand[0] * 2, operand[0])
    return text.read_number(operand)


def _operand(operand: Cell | Constant) -> str:
    if not isinstance(operand, Cell):
        return text.format_text(operand if isinstance(operand, dt.date) else str(operand))
    name = operand.attribute
    return f"t{operand.row}." + (
        name if re.fullmatch(_BARE, name) else "`" + name.replace("`", "``") + "`"
    )


def _require_declared(predicates: list[Predicate], rows: str, location: str) -> None:
    unknown = {f"t{cell.row}" for p in predicates for cell in p.cells} - {
        row.strip() for row in rows.split("&")
    }
    if unknown:
        raise ConstraintError(
            f"{location}: {min(unknown)} is compared but the line starts with {rows}; "
            "start with t1&t2"
        )


def _unreadable(location: str, rest: str) -> ConstraintError:
    return ConstraintError(
        f"{location}: cannot read '{rest}'; write t1&t2&EQ(t1.a,t2.a)&IQ(t1.b,t2.b), constants "
        "quoted"
    )


def constraints_of(
    declarations: Sequence[ConstraintDeclaration],
    attribute_names: Collection[str],
    folder: Path,
    ignored: Collection[str] = (),
    require: Callable[[DenialConstraint], object] | None = None,
    domain: Domain | None = None,
) -> tuple[DenialConstraint, ...]:
    """The constraints of a spec, in order; files are looked up in ``folder``.

    ``ignored`` columns are left out of the data; no constraint can use them. ``require`` raises a
    ConstraintError for one that cannot be used, which then has the keys of its declaration. A
    ``check`` is read with the ``domain``: what may be missing, and which values are months.

    Raises:
        ConstraintError: one cannot be read, names an unknown attribute, or two have the same name.
        StorageError: a constraint file cannot be read.
    """
    constraints: list[DenialConstraint] = []
    known = partial(_require_known, names=attribute_names, ignored=ignored)
    for position, declaration in enumerate(declarations):
        with declared_at("constraints", position):
            for constraint in _constraints(declaration, position + 1, folder, domain, known):
                known(constraint.name, constraint.attributes)
                if require:
                    require(constraint)
                constraints.append(_as_declared(constraint, declaration))
    _require_unique([constraint.name for constraint in constraints])
    return tuple(constraints)


@contextmanager
def declared_at(*keys: str | int) -> Iterator[None]:
    """Add the keys of a spec, under which constraints are read inside, to what is wrong with one.

    Raises:
        ConstraintError: that of inside, with the keys that lead to the constraint.
    """
    try:
        yield
    except ConstraintError as error:
        raise ConstraintError(str(error), (*keys, *error.keys)) from None


def declaration_of(constraint: DenialConstraint) -> ConstraintDeclaration:
    """The declaration that ``constraints_of`` reads as this constraint: key, fd or deny.

    The first of these forms that can express it.
    """
    declare = partial(
        ConstraintDeclaration,
        name=constraint.name,
        soft=_softness(constraint),
        provenance=constraint.provenance,
    )
    attributes, rule = text.key_attributes(constraint), text.functional_dependency(constraint)
    if attributes is not None:
        return declare(key=list(attributes))
    if rule is not None and rule[0]:
        return declare(fd=text.format_dependency(rule[0], [rule[1]]))
    return declare(deny=text.format_denial(constraint))


def _softness(constraint: DenialConstraint) -> bool | KnownSoftness:
    known = constraint.known
    if known is None:
        return not constraint.hard
    return KnownSoftness(weight=known.weight, rate=known.rate, provenance=known.provenance)


def _as_declared(
    constraint: DenialConstraint, declaration: ConstraintDeclaration
) -> DenialConstraint:
    """The constraint with what is declared beside its rule."""
    soft = declaration.soft
    known = None if isinstance(soft, bool) else KnownFigure(soft.weight, soft.rate, soft.provenance)
    return replace(
        constraint,
        known=known,
        provenance=declaration.provenance,
        sentence=declaration.check or "",
    )


def _constraints(
    declaration: ConstraintDeclaration,
    number: int,
    folder: Path,
    domain: Domain | None,
    known: Callable[[str, Sequence[str]], None],
) -> tuple[DenialConstraint, ...]:
    name, hard = declaration.name or f"constraint_{number}", not declaration.soft
    if declaration.fd is not None:
        return _dependencies(declaration.fd, name, hard)
    if declaration.deny is not None:
        return (text.parse_denial(declaration.deny, name, hard),)
    if declaration.check is not None:
        if domain is None:
            raise TypeError("a check is read with the domain of its attributes")
        if dates.says_date(declaration.check):
            known(name, dates.date_columns(declaration.check, name))
            return dates.date_rules(declaration.check, name, domain, hard)
        nullable = [column.name for column in domain if column.attribute.nullable]
        return text.parse_check(declaration.check, name, nullable, hard)
    if declaration.key is not None:
        return (text.key(name, declaration.key, hard),)
    path = folder / str(declaration.file)
    return read_holoclean(path, declaration.name or path.stem, hard)


def _dependencies(rule: str, name: str, hard: bool) -> tuple[DenialConstraint, ...]:
    left, right = text.parse_dependency(rule, name)
    if len(right) == 1:
        return (text.dependency(name, left, right[0], hard),)
    return tuple(
        text.dependency(f"{name}_{position}", left, attribute, hard)
        for position, attribute in enumerate(right, 1)
    )


def _require_unique(names: list[str]) -> None:
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ConstraintError(
            f"constraint '{twice[0]}': two constraints have this name; rename one"
        )


def _require_known(
    constraint: str, attributes: Sequence[str], names: Collection[str], ignored: Collection[str]
) -> None:
    for attribute in attributes:
        if attribute in ignored:
            raise ConstraintError(
                f"constraint '{constraint}': '{attribute}' is left out by ignore; declare it "
                "under attributes"
            )
        if attribute not in names:
            close = difflib.get_close_matches(attribute, names, n=1)
            hint = (
                f"did you mean '{close[0]}'?"
                if close
                else "declare it under attributes or correct the name"
            )
            raise ConstraintError(f"constraint '{constraint}': no attribute '{attribute}'; {hint}")
