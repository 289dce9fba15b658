"""The report of a release for analysts: one page that loads nothing, made of its public facts.

Privacy: from the certificate, the saved model with its spec and the released rows alone, all of
which are as public as the release. The twin for reviewers adds exact figures of the evaluation,
which is internal, and so is that page.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np

from cloister.figures import figure, figure_range
from cloister.privacy.certificate.certificate import NOT_STATED, Certificate, ConstraintOrigin
from cloister.privacy.certificate.page import render
from cloister.privacy.certificate.wording import ALWAYS_SAID
from cloister.schema.declarations import quote
from cloister.tasks.release.analyst_columns import TAIL, ColumnFacts
from cloister.tasks.release.analyst_facts import FAINT, LinkFacts, TableFacts

_TEMPLATE = "report.html"

_WIDTH, _HEIGHT = 320, 96
"""A plot of a column in its own units; the page scales it."""


_MOST_IN_MATRIX = 40
"""Columns of a matrix at most: those of the strongest pairs. More are no picture."""


_CELL, _LABELS = 18, 150
"""Pixels of a cell of the matrix, and of its names."""


_LONGEST_LABEL = 18
"""Letters of a name beside the matrix; its cells tell the whole."""


_FOLDED = 60
"""Columns of a table that are shown at once; of more, by as many, in parts that unfold."""


@dataclass(frozen=True)
class ColumnBars:
    """The ranges of a number as an SVG: paths of bars and of intervals; labels of both ends."""

    bars: str
    intervals: str
    begin: str
    end: str
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True)
class Matrix:
    """Pairs of columns as an SVG: names, and cells: row, column, strength, counted or not."""

    names: tuple[str, ...]
    labels: tuple[str, ...]
    cells: tuple[tuple[int, int, float, bool | None], ...]
    cell: int = _CELL
    left: int = _LABELS

    @property
    def width(self) -> int:
        """Pixels."""
        return self.left + self.cell * len(self.names)

    @property
    def height(self) -> int:
        """Pixels."""
        return self.cell * (len(self.names) + 1)


@dataclass(frozen=True)
class ReleaseFacts:
    """All facts of a release: of its tables, and of the foreign keys between them."""

    tables: tuple[TableFacts, ...]
    links: tuple[LinkFacts, ...] = ()


@dataclass(frozen=True)
class ExactFigures:
    """Exact figures of an evaluation: internal.

    ``distances`` are half L1 distances of marginals by table and columns, the only table under no
    name; ``rules`` are percent of real rows, or pairs, that violate each. ``units`` are half L1
    distances of rows of one unit, by unit and by what is compared.
    """

    distances: Mapping[tuple[str, frozenset[str]], float]
    rules: Mapping[str, float]
    measures: Mapping[str, float]
    units: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, evaluation: Mapping[str, Any]) -> ExactFigures:
        """Those in the JSON of an evaluation of one table, or of several."""
        distances = {
            (name, frozenset(each["attributes"])): each["half_l1"]
            for name, table in evaluation.get("tables", {"": evaluation}).items()
            for way in table["marginals"]
            for each in way["sets"]
        }
        rules = {rule["name"]: rule["real_percent"] for rule in evaluation["violations"]}
        units = {name: _unit_distances(unit) for name, unit in evaluation.get("units", {}).items()}
        return cls(distances, rules, evaluation.get("headline", evaluation["metrics"]), units)

    @property
    def farthest(self) -> float:
        """The longest bar of units, so that all have one scale."""
        bars = (distance for unit in self.units.values() for distance in unit.values())
        return max(bars, default=0.0) or 1.0

    def distance(self, table: str, *names: str) -> float | None:
        """Of the marginal of some columns; None where it was not measured."""
        key = frozenset(names)
        return self.distances.get((table, key), self.distances.get(("", key)))


def _unit_distances(unit: Mapping[str, Any]) -> dict[str, float]:
    """The distances of rows of one unit in the JSON of an evaluation, by what is compared."""
    distances = {"sizes": unit["sizes"]["half_l1"]}
    for joint in unit["siblings"]:
        distances |= {f"siblings: {one['attributes'][0]}": one["half_l1"] for one in joint["sets"]}
    for joint in unit["across"]:
        distances[f"across: {joint['ways']} columns, mean"] = joint["mean_half_l1"]
    return distances


def analyst_page(
    certificate: Certificate, facts: ReleaseFacts, exact: ExactFigures | None = None
) -> str:
    """The page; with exact figures the internal one. Every text in it is escaped."""
    source = files("cloister.tasks.release").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    tables = facts.tables
    return render(
        source,
        c=certificate,
        tables=tables,
        links=facts.links,
        several=certificate.subject.product == "synthetic database",
        stated=defaultdict(str, {k: v for k, v in certificate.about.items() if v != NOT_STATED}),
        attributes={attribute.name: attribute for attribute in certificate.attributes},
        groups=_group_sizes(tables),
        matrices={table.name: matrix(table) for table in tables},
        plot=column_plot,
        rules=_distinct(certificate.constraints),
        rule_words=rule_words,
        question=_question(tables),
        folded=_FOLDED,
        types=_TYPES,
        exact=exact,
        table_files=[name for name in certificate.artefacts if name.endswith(".parquet")],
        number=figure,
        percents=_percents,
        always_said=ALWAYS_SAID,
    )


def _distinct(rules: Sequence[ConstraintOrigin]) -> list[ConstraintOrigin]:
    """The rules without those that say the same in words: a check may stand for several."""
    first: dict[str, ConstraintOrigin] = {}
    for rule in rules:
        first.setdefault(rule_words(rule), rule)
    return list(first.values())


def _question(tables: Sequence[TableFacts]) -> str:
    """A question that the noisy counts answer, for a shell; empty where there are none."""
    number = next((c.name for table in tables for c in table.columns if c.mean), None)
    by = next(
        (c.name for table in tables for c in table.columns if c.least and not c.quartiles), None
    )
    if number is None and by is None:
        return ""
    figure_of = "count()" if number is None else f"mean({quote(number)})"
    return shlex.quote(figure_of if by is None else f"{figure_of} by {quote(by)}")


_TYPES = MappingProxyType(
    {
        "integer": "whole number",
        "float": "decimal number",
        "date": "date",
        "datetime": "date and time",
        "categorical": "one of a list",
        "ordinal": "one of an ordered list",
        "boolean": "yes or no",
        "text": "key",
    }
)


def _percents(share: float) -> str:
    """A share in percent with a decimal place, or two digits where it is small."""
    percent = 100 * share
    return f"{percent:.1f}" if percent >= 1 or percent < 0.0005 else figure(percent, 2)


def _group_sizes(tables: Sequence[TableFacts]) -> list[tuple[str, list[str]]]:
    """What is counted, and the smallest groups for each error; nothing where noise is unknown."""
    kinds = {
        "values of one column": [
            column.least for table in tables for column in table.columns if column.least
        ],
        "values of two columns that were counted together": [
            table.least_of_pairs for table in tables if table.least_of_pairs
        ],
    }
    return [
        (what, [figure_range(sizes, 2) for sizes in zip(*least, strict=True)])
        for what, least in kinds.items()
        if least
    ]


def column_plot(column: ColumnFacts) -> ColumnBars | None:
    """The plot of a number's ranges; None of a list, or of a single range.

    Heights are shares for the usual width of a range. Ends with next to no rows are not drawn.
    """
    drawn = [group for group in column.groups if group.extent]
    while drawn and drawn[0].share <= TAIL:
        drawn = drawn[1:]
    while drawn and drawn[-1].share <= TAIL:
        drawn = drawn[:-1]
    if len(drawn) < 2:
        return None
    extents = np.array([group.extent for group in drawn], dtype=np.float64)
    widths = extents[:, 1] - extents[:, 0]
    scale = np.median(widths) / widths
    begin, span = extents[0, 0], extents[-1, 1] - extents[0, 0]
    left, right = (_WIDTH * (extents[:, end] - begin) / span for end in (0, 1))
    highest = max(
        max(group.share, group.high or 0.0) * times
        for group, times in zip(drawn, scale, strict=True)
    )

    def up(share: float, times: float) -> float:
        return float(_HEIGHT * (1 - share * times / highest))

    bars, lines = [], []
    for group, times, begins, ends in zip(drawn, scale, left, right, strict=True):
        bars.append(
            f"M{begins:.1f} {_HEIGHT}V{up(group.share, times):.1f}H{ends - 1:.1f}V{_HEIGHT}Z"
        )
        if group.low is not None and group.high is not None:
            middle = (begins + ends - 1) / 2
            lines.append(f"M{middle:.1f} {up(group.low, times):.1f}V{up(group.high, times):.1f}")
    first, last = drawn[0].label.partition(" to ")[0], drawn[-1].label.rpartition(" to ")[2]
    return ColumnBars("".join(bars), "".join(lines), first, last)


def matrix(table: TableFacts) -> Matrix | None:
    """The matrix of a table's pairs; None where no strength reaches `FAINT`.

    Of many columns it has those of the strongest pairs, in the order of the table.
    """
    if not table.pairs or table.pairs[0].strength < FAINT:
        return None
    strongest = np.where(np.eye(len(table.names), dtype=bool), 0, table.strengths).max(axis=1)
    chosen = np.sort(np.argsort(-strongest, kind="stable")[:_MOST_IN_MATRIX])
    names = tuple(table.names[position] for position in chosen)
    cells = tuple(
        (row, column, table.strengths[chosen[row], chosen[column]], table.counts(*pair))
        for row in range(len(names))
        for column in range(row)
        for pair in [(names[row], names[column])]
    )
    labels = tuple(
        name
        if len(name) <= _LONGEST_LABEL
        else name[: _LONGEST_LABEL - 1] + "\N{HORIZONTAL ELLIPSIS}"
        for name in names
    )
    return Matrix(names, labels, cells)


def rule_words(rule: ConstraintOrigin) -> str:
    """What a rule says, in words, as a whole sentence."""
    kind, _, text = rule.rule.partition(": ")
    left, _, right = text.partition(" -> ")
    pair = re.search(r"\bt2\.", text)
    sentences = {
        "fd": f"Rows with the same {_and(left)} have the same {_and(right)}.",
        "key": f"No two rows have the same {_and(text)}.",
        "foreign key": f"Each {text.replace(' refers to ', ' that is there is a ')}.",
    }
    if kind in sentences:
        return sentences[kind]
    alone = re.sub(r"\bt\.", "", text)
    if kind == "check":
        return f"In each row: {alone.partition('; so deny: ')[0]}."
    return f"No two rows t1, t2 have {text}." if pair else f"No row has {alone}."


def _and(names: str) -> str:
    return names.replace(", ", " and ")
