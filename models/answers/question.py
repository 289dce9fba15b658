"""Questions about a table as text, bound to its columns: post-processing of nothing, public.

    count() where sex = 'F' and age >= 65     rows of a table of the declared size
    share(income = '>50K') by sex             of the rows of each group
    mean(age) by sex, `home region`           without missing values
    median(age), quantile(age, 0.9)           without missing values
    table(sex), table(sex, income)            the share of all rows that each cell holds
    linear(pay ~ age + sex)                   coefficients of a linear regression
    logistic(income = '>50K' ~ age + sex)     those of a logistic one

``by`` and ``where`` may follow each of them, and ``where`` a regression. A condition is clauses
joined by ``and``, or clauses on one column joined by ``or``. A clause begins with ``not`` or not::

    age >= 65,  65 <= age      a comparison: = != < <= > >=
    age in 30..49              from 30 to 49, both included; not in
    region in (north, east)    one of these; not in
    reason is missing          is not missing

Text of one word needs no quotes; other text stands in single quotes, names that are not bare words
in backquotes. As in SQL a missing value fulfils no clause but ``is missing``, nor its opposite.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np

from cloister.constraints import denial
from cloister.constraints.denial import BoundPredicate, Op
from cloister.constraints.text import unquote
from cloister.errors import ConstraintError, InputError
from cloister.schema.columns import Column, Grid
from cloister.schema.declarations import BARE_NAME, quote
from cloister.schema.domain import Domain

Kind = Literal["count", "share", "mean", "quantile", "table", "linear", "logistic"]

_QUOTED = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`")
_FORM = re.compile(
    r"\s*(?P<kind>[a-z]+)\s*\((?P<of>(?:[^()]|\([^()]*\))*)\)\s*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_CLAUSES = re.compile(
    r"(?:by\s+(?P<by>.+?))?\s*(?:where\s+(?P<where>.+))?", re.IGNORECASE | re.DOTALL
)
_NAME = rf"(?:`(?:[^`]|``)+`|{BARE_NAME})"
_VALUE = r"(?:'(?:[^']|'')*'|(?:(?!\.\.)[^\s'`<>=!≠≤≥(),])+)"
_CLAUSE = re.compile(
    rf"""\s*(?P<not>not\s+)?(?:
        (?P<name>{_NAME})\s+(?P<out>not\s+)?in\s*
            (?:(?P<low>{_VALUE})\s*\.\.\s*(?P<high>{_VALUE})
              |\((?P<list>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\))
      | (?P<gap>{_NAME})\s+is\s+(?P<there>not\s+)?(?:missing|null)
      | (?P<left>{_NAME}|{_VALUE})\s*(?P<op><=|>=|!=|<>|==|[=<>≠≤≥])\s*(?P<right>{_NAME}|{_VALUE})
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_OPS = {"==": Op.EQ, "<>": Op.NE, "≠": Op.NE, "≤": Op.LE, "≥": Op.GE} | {op.value: op for op in Op}

_REMEDY = (
    'ask such as "count() where age >= 65", "share(income = \'>50K\') by sex", "mean(age) by '
    'sex", "median(age)", "quantile(age, 0.9)", "table(sex, income)" '
    'or "linear(pay ~ age + sex)"'
)

_ARGUMENTS = {"count": (0,), "mean": (1,), "quantile": (1,), "table": (1, 2)}
"""How many columns each kind is of."""


@dataclass(frozen=True)
class Clause:
    """Comparisons of one column that all hold, or of which one holds."""

    column: Column
    predicates: tuple[BoundPredicate, ...]
    either: bool = False


@dataclass(frozen=True)
class Filter:
    """Clauses that all hold, or of which one holds; then they are of one column."""

    clauses: tuple[Clause, ...] = ()
    either: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are compared, each once."""
        return tuple(dict.fromkeys(clause.column.name for clause in self.clauses))


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

    def renamed(self, names: Mapping[str, str]) -> Question:
        """The question with other names of columns."""

        def columns(some: tuple[Column, ...]) -> tuple[Column, ...]:
            return tuple(replace(each, name=names.get(each.name, each.name)) for each in some)

        def condition(of: Filter) -> Filter:
            clauses = (replace(c, column=columns((c.column,))[0]) for c in of.clauses)
            return replace(of, clauses=tuple(clauses))

        where, having = condition(self.where), condition(self.having)
        return replace(self, of=columns(self.of), by=columns(self.by), where=where, having=having)


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
        probability = _probability(names.pop() if names else "")
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
    """The clauses of a condition, each on one column."""
    masked = re.sub(r"\([^()]*\)", lambda match: "_" * len(match[0]), _masked(text))
    joints = list(re.finditer(r"\s(and|or)\s", masked, re.IGNORECASE))
    words = {joint[1].lower() for joint in joints}
    starts = [0, *(joint.end() for joint in joints)]
    ends = [*(joint.start() for joint in joints), len(text)]
    clauses = [_clause(text[start:end], domain) for start, end in zip(starts, ends, strict=True)]
    condition = Filter(tuple(clauses), "or" in words)
    if len(words) > 1 or (condition.either and len(condition.names) > 1):
        raise InputError(
            f"the condition {text!r} joins {' and '.join(condition.names)} by or; join clauses on "
            "one column by or, as region in (north, east), and others by and; or ask twice"
        )
    return condition


def _clause(text: str, domain: Domain) -> Clause:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise InputError(
            f"cannot read the condition {text.strip()!r}; write such as age >= 65, age in 30..49, "
            "region not in (north, east) or reason is missing, joined by and; text with blanks or "
            "signs in single quotes, odd names in backquotes"
        )
    name, compared, either = _compared(match, domain)
    column = _column(name, domain)
    if bool(match["not"]) != bool(match["out"] or match["there"]):
        compared, either = [(denial.NEGATED[op], value) for op, value in compared], not either
    predicates = [
        denial.Predicate(denial.Cell(1, column.name), op, _constant(column, value, domain))
        for op, value in compared
    ]
    try:
        bound = denial.bind(
            denial.DenialConstraint("condition", tuple(predicates)), domain
        ).predicates
    except ConstraintError as error:
        said = str(error).removeprefix("constraint 'condition': ").split("; ")[0]
        raise InputError(f"the condition {text.strip()!r}: {said}; {_example(column)}") from None
    low, *high = [cast("float", predicate.right) for predicate in bound]
    if match["low"] and low > high[0]:
        raise InputError(f"the range {text.strip()!r} runs backwards; {_example(column)}")
    return Clause(column, bound, either)


def _compared(
    match: re.Match[str], domain: Domain
) -> tuple[str, list[tuple[Op, str | None]], bool]:
    """The column of a clause, with what it is compared, and whether one comparison is enough."""
    if match["gap"]:
        return match["gap"], [(Op.EQ, None)], False
    if match["list"]:
        return match["name"], [(Op.EQ, value) for value in _split(match["list"])], True
    if match["low"]:
        return match["name"], [(Op.GE, match["low"]), (Op.LE, match["high"])], False
    left, op, right = match["left"], _OPS[match["op"]], match["right"]
    if unquote(left) not in domain and unquote(right) in domain:
        left, op, right = right, op.mirrored, left
    return left, [(op, right)], False


def _constant(column: Column, written: str | None, domain: Domain) -> str | bool | None:
    """A value as it is declared; None for ``missing``."""
    if written is None:
        return None
    value = written[1:-1].replace("''", "'") if written.startswith("'") else written
    listed = column.labels or ()
    if value in listed:
        return value
    if unquote(written) in domain:
        raise InputError(
            f"the condition compares two columns, '{column.name}' and '{unquote(written)}'; "
            f"compare each with a constant: {_example(column)}"
        )
    if value.lower() in ("true", "false") and column.attribute.type == "boolean":
        return value.lower() == "true"
    if not listed:
        return value
    near = difflib.get_close_matches(value, listed, 3)
    raise InputError(
        f"column '{column.name}' has no value {value!r}; use one of {', '.join(near or listed[:9])}"
    )


def _example(column: Column) -> str:
    """A clause that the column can have, of declared values."""
    if column.kind == "nominal":
        return f"write such as {quote(column.name)} in ({', '.join((column.labels or ())[:2])})"
    last = (column.steps if isinstance(column, Grid) else column.values) - 1
    ends = column.decode(np.array([0, last], dtype=np.int64)).astype(str)
    return f"write such as {quote(column.name)} in {ends.iloc[0]}..{ends.iloc[1]}"
