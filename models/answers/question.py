"""Questions about a table as text, bound to its columns: post-processing of nothing, public.

    count() where sex = 'F' and age >= 65     rows of a table of the declared size
    share(income = '>50K') by sex             of the rows of each group
    mean(age) by sex, `home region`           without missing values
    median(age), quantile(age, 0.9)           without missing values
    table(sex), table(sex, income)            the share of all rows that each cell holds
    linear(pay ~ age + sex)                   coefficients of a linear regression
    logistic(income = '>50K' ~ age + sex)     those of a logistic one

``by`` and ``where`` may follow each of them, and ``where`` a regression. Conditions are those of
checks (:mod:`cloister.constraints.text`) on one row, without its ``t.``: comparisons joined by
``and``, or those of one column by ``or``. Names that are not bare words stand in backquotes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from cloister.constraints.denial import BoundPredicate, DenialConstraint, Operand, bind
from cloister.constraints.text import parse_condition, unquote
from cloister.errors import ConstraintError, InputError
from cloister.schema.columns import Column
from cloister.schema.declarations import BARE_NAME
from cloister.schema.domain import Domain

Kind = Literal["count", "share", "mean", "quantile", "table", "linear", "logistic"]

_QUOTED = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`")
_FORM = re.compile(
    r"\s*(?P<kind>[a-z]+)\s*\((?P<of>[^()]*)\)\s*(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)
_CLAUSES = re.compile(
    r"(?:by\s+(?P<by>.+?))?\s*(?:where\s+(?P<where>.+))?", re.IGNORECASE | re.DOTALL
)
_PIECE = re.compile(
    rf"(?P<quoted>'(?:[^']|'')*')|(?P<name>`(?:[^`]|``)+`|{BARE_NAME})|.", re.DOTALL
)
_WORDS = {"and", "or", "is", "not", "missing", "null", "true", "false"}

_REMEDY = (
    'ask such as "count() where age >= 65", "share(income = \'>50K\') by sex", "mean(age) by '
    'sex", "median(age)", "quantile(age, 0.9)" or "table(sex, income)"'
)

_ARGUMENTS = {"count": (0,), "mean": (1,), "quantile": (1,), "table": (1, 2)}
"""How many columns each kind is of."""


@dataclass(frozen=True)
class Filter:
    """Comparisons that all hold, or of which one holds; then they are of one column."""

    predicates: tuple[BoundPredicate, ...] = ()
    either: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are compared, each once."""
        return tuple(dict.fromkeys(each.left.attribute for each in self.predicates))


@dataclass(frozen=True)
class Question:
    """A figure of the rows that fulfil ``where``, of all of them or by groups.

    ``of`` are the columns that it is of, ``probability`` that of a quantile; a share is of the rows
    that fulfil ``having``.
    """

    text: str
    kind: Kind
    of: tuple[Column, ...] = ()
    by: tuple[Column, ...] = ()
    where: Filter = Filter()
    having: Filter = Filter()
    probability: float = 0.5

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that take part, each once, those of groups first."""
        named = [column.name for column in (*self.by, *self.of)]
        return tuple(dict.fromkeys((*named, *self.having.names, *self.where.names)))


def parse_question(text: str, domain: Domain) -> Question:
    """The question that a text asks of a table of these columns.

    Raises:
        InputError: the text has another form, or asks for what the columns do not have.
    """
    masked = _masked(text)
    form = _FORM.fullmatch(masked)
    clauses = _CLAUSES.fullmatch(form["rest"].rstrip()) if form else None
    kind = form["kind"].lower() if form else ""
    if form is None or clauses is None or kind not in (*get_args(Kind), "median"):
        raise InputError(f"cannot read the question {text!r}; {_REMEDY}")

    def part(match: re.Match[str], name: str, start: int = 0) -> str:
        return text[start + match.start(name) : start + match.end(name)].strip()

    rest = form.start("rest")
    by = _columns(part(clauses, "by", rest), domain) if clauses["by"] else ()
    where = _condition(part(clauses, "where", rest), domain) if clauses["where"] else Filter()
    of = part(form, "of")
    if kind == "share":
        having = _condition(of, domain)
        return Question(text, "share", by=by, where=where, having=having)
    if kind in ("linear", "logistic"):
        return _regression(Question(text, cast("Kind", kind), by=by, where=where), of, domain)
    names, probability = _split(of), 0.5
    if kind == "quantile":
        *names, written = names
        probability = _probability(written)
    columns = tuple(_column(name, domain) for name in names)
    kind = "quantile" if kind == "median" else kind
    _require_fitting(kind, columns)
    return Question(text, cast("Kind", kind), columns, by, where, Filter(), probability)


def _regression(question: Question, of: str, domain: Domain) -> Question:
    """The question with what is explained, and what by."""
    masked = _masked(of)
    answer, tilde, rest = masked.partition("~")
    if not tilde or not rest.strip() or question.by:
        raise InputError(
            f"cannot read {question.text!r}; write linear(y ~ a + b) or logistic(y = 'yes' ~ a + b)"
            ", without by"
        )
    start = len(answer) + 1
    columns = tuple(_column(name, domain) for name in _split(of[start:], "+"))
    if question.kind == "logistic":
        having = _condition(of[: start - 1].strip(), domain)
        answers = {*having.names}
    else:
        explained = _column(of[: start - 1].strip(), domain)
        _require_fitting("mean", [explained])
        having, columns, answers = Filter(), (explained, *columns), {explained.name}
    named = [column.name for column in columns[question.kind == "linear" :]]
    if len(set(named)) < len(named) or answers & set(named) or len(answers) > 1:
        raise InputError(f"{question.text!r} names a column twice; name each once")
    return replace(question, of=columns, having=having)


def _require_fitting(kind: str, columns: Sequence[Column]) -> None:
    if len(columns) not in _ARGUMENTS[kind]:
        wanted = " or ".join(map(str, _ARGUMENTS[kind]))
        raise InputError(f"{kind}() is of {wanted} columns, not {len(columns)}; {_REMEDY}")
    for column in columns if kind in ("mean", "quantile") else ():
        if column.kind != "numeric":
            raise InputError(
                f"{kind}(): column '{column.name}' holds no numbers; ask for "
                f"table({column.name}), or for share({column.name} = '...')"
            )


def _probability(text: str) -> float:
    try:
        probability = float(text)
    except ValueError:
        probability = 0.0
    if not 0 < probability < 1:
        raise InputError(f"quantile(): {text!r} is no number between 0 and 1; write 0.9, say")
    return probability


def _columns(text: str, domain: Domain) -> tuple[Column, ...]:
    return tuple(_column(name, domain) for name in _split(text))


def _masked(text: str) -> str:
    """The text with all that is quoted blotted out, so that its signs mean something."""
    return _QUOTED.sub(lambda match: "_" * len(match[0]), text)


def _split(text: str, sign: str = ",") -> list[str]:
    """Names, or numbers, between commas or other signs."""
    ends = [match.start() for match in re.finditer(re.escape(sign), _masked(text))]
    starts = [0, *(end + 1 for end in ends)]
    names = [text[start:end].strip() for start, end in zip(starts, [*ends, None], strict=True)]
    return names if names != [""] else []


def _column(written: str, domain: Domain) -> Column:
    name = unquote(written)
    if name in domain and domain[name].kind != "key":
        return domain[name]
    if name in domain:
        raise InputError(f"column '{name}' is a key, numbered afresh: no figure of it means much")
    near = difflib.get_close_matches(name, domain.modelled, 3)
    raise InputError(
        f"no column '{name}'; use one of {', '.join(near or domain.modelled)}, odd names in "
        "backquotes"
    )


def _condition(text: str, domain: Domain) -> Filter:
    """The comparisons of a condition, each of one column with a constant, or with missing."""
    try:
        written, either = parse_condition(_with_cells(text), "condition")
        predicates = bind(DenialConstraint("condition", written), domain).predicates
    except ConstraintError as error:
        said = str(error).removeprefix("constraint 'condition': ").split("; ")[0]
        raise InputError(
            f"the condition {text!r}: {said}; write such as age >= 65 and sex = 'F', text in "
            "single quotes, odd names in backquotes"
        ) from None
    for predicate in predicates:
        if isinstance(predicate.right, Operand):
            raise InputError(
                f"the condition {text!r} compares two columns; compare each with a constant"
            )
        if domain[predicate.left.attribute].kind == "key":
            raise InputError(
                f"the condition {text!r} is on a key, which is numbered afresh; leave it out"
            )
    condition = Filter(predicates, either)
    if either and len(condition.names) > 1:
        raise InputError(
            f"the condition {text!r} joins {' and '.join(condition.names)} by or; join comparisons "
            "of one column by or, or ask twice"
        )
    return condition


def _with_cells(text: str) -> str:
    """The condition as a constraint writes it, with ``t.`` before each name."""

    def cell(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None or name.lower() in _WORDS or re.fullmatch(r"\d[\d.eE+-]*", name):
            return match[0]
        return f"t.{name}"

    return _PIECE.sub(cell, text)
