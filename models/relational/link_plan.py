"""The queries of each relationship: options, candidates, how many joint tables noise bears, stages.

A relationship is queried for its degrees, then for selected joint tables in rounds. What options
leave out follows from public facts.

Source: arXiv 2405.18670, algorithm 1: rounds of selections by the exponential mechanism, each
    followed by measurements. Exponents and noise follow from the sensitivities of the door's
    queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field

from cloister.figures import count_of, figure
from cloister.models.core.budget_split import DIGITS, CountNoise, counts_stage
from cloister.models.relational.likeness import CLEAR
from cloister.models.relational.profiles import MOST_PARTS, Workload
from cloister.models.task import DatabaseTask, Stage, options_of
from cloister.privacy.accounting.accountants import noise_multiplier
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.noise import DiscreteGaussian, DiscreteLaplace, Neighbours
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip
from cloister.schema import relations
from cloister.schema.attributes import Declared
from cloister.schema.declarations import DeclaredEpsilon, Exact
from cloister.schema.fan_outs import rows_changed

MOST_CANDIDATES = 2_000
"""Most joint tables to select among; if there are more, only those of two attributes."""

DEGREES, LIKENESS = "degrees", "likeness"
"""Labels of the noisy degree distribution of a relationship, and of kinds of pairs of rows."""

SELECT, MEASURE = "select", "measure"
"""Labels of the rounds of a relationship."""

DEGREES_ONLY = Fraction(1, 10)
"""Part of a relationship's budget for its degrees: few counts, with a smaller sensitivity."""

_LIKENESS = Fraction(6, 100)
"""Part of a relationship's budget for kinds of pairs of rows of one parent, as in one table."""

_OF_A_KIND = 0.2
"""Share of parents with which a kind of pairs must stand out from the noise for any to be counted.

Rows that are alike have one or two kinds with as many.
"""

_SELECTING = Fraction(1, 4)
"""Part alpha of a round for its selection; a wrong choice costs less than a noisy table."""

_ROUNDS = ((3, 3, 3, 3), (2, 2, 2), (1, 1, 1, 1), (1, 1))
"""Schedules of rounds: the joint tables K that each selects and measures, from most to fewest.

A round selects what the rounds before left unexplained.
"""

MOST_TABLES = sum(_ROUNDS[0])
"""Most joint tables of a relationship."""

_NOISY = 2 / 3 * 0.05
"""Share of rows that noise may move in a joint table, on average over candidates.

A correlation of 0.16 moves a twentieth of the rows of a table of two by two parts. Where each table
brings dependence less noise, and noise grows with the root of their number, most is brought where
noise is 2/3 of dependence. Tried: a noise that falls with the root of the tables in turn, with a
third of them; the same on average, with more releases that miss a table.
"""

_PARTS, _PARTS_OF_THREE = 2, 4
"""Parts of an attribute by which noise is judged; rounds choose those of each table."""

MEAN_NOISE = math.sqrt(2 / math.pi)
"""Mean absolute value of a standard normal: the error that noise alone gives a count."""

_FLOAT_ERROR = 1e-9
"""Relative margin by which an epsilon is lowered: above the error of a floating-point root."""


class RelationalOptions(Declared):
    """The options of methods of several tables."""

    table_method: str | None = Field(default=None, description="makes the rows of each table")
    epsilon: DeclaredEpsilon | None = Field(
        default=None,
        description="of all relationships alone, at the delta of the release; tables have the rest",
    )
    rounds: int | None = Field(
        default=None, ge=1, description="T, in each of which joint tables are selected and measured"
    )
    workloads: int | None = Field(default=None, ge=1, description="K, the joint tables of a round")
    alpha: Annotated[Exact, Field(gt=0, lt=1)] | None = Field(
        default=None, description="the part of a round's budget for its selection"
    )
    ways: Literal[2, 3] | None = Field(default=None, description="attributes of a joint table")


def workloads(parent: Sequence[str], child: Sequence[str]) -> tuple[Workload, ...]:
    """The joint tables of two and three attributes, one of each side at least."""
    two = tuple(
        Workload((parent_name,), (child_name,)) for parent_name in parent for child_name in child
    )
    three = tuple(_of_three(parent, child))
    return two + three if len(two) + len(three) <= MOST_CANDIDATES else two


def candidates(
    schema: relations.Schema, key: relations.ForeignKey, ways: int | None = None
) -> tuple[Workload, ...]:
    """The joint tables across a key that may be measured; of ``ways`` attributes if that is given.

    Rows without attributes are related to their first parent's by the tables of their next key;
    where there is no next key, tables of the parents' attributes alone are counted.
    """
    child, parent = (domain.names for domain in relations.joined_domain(schema, key))
    if child:
        tables = workloads(parent, child)
        wanted = tuple(table for table in tables if ways in (None, len(table.names)))
        return wanted or tables
    later = [
        reference
        for reference in schema.parents_of(key.table)
        if reference != key and not reference.optional
    ]
    if later:
        return ()
    pairs = (Workload(pair, ()) for pair in combinations(parent, 2))
    return (*(Workload((one,), ()) for one in parent), *pairs)


def _of_three(parent: Sequence[str], child: Sequence[str]) -> Iterator[Workload]:
    for pair in combinations(parent, 2):
        yield from (Workload(pair, (name,)) for name in child)
    for pair in combinations(child, 2):
        yield from (Workload((one,), pair) for one in parent)


@dataclass(frozen=True)
class LinkNoise:
    """The mechanisms of one relationship.

    ``rounds`` are the joint tables that each round selects and measures, of ``ways`` attributes, or
    of two and three if it is None. Without ``selection`` all are measured; ``tables`` is None if
    there is none to measure, ``likeness`` if no pairs of rows of one parent are compared.
    """

    degrees: CountNoise
    selection: Exponential | PermuteAndFlip | None
    tables: CountNoise | None
    rounds: tuple[int, ...]
    ways: int | None
    likeness: CountNoise | None = None


def link_noise(
    task: DatabaseTask, key: relations.ForeignKey, amount: Fraction, pure: bool
) -> LinkNoise:
    """The noise of as many joint tables as the declared rows bear, or as the spec declares.

    At least one, if there is any. ``amount`` is an epsilon if ``pure``, else a rho.
    """
    noise = None
    for ways, rounds, parts in _schedules(task):
        noise = _noise(task, key, rounds, ways, amount, pure)
        if noise.tables is None or _clear(task, key, noise, parts):
            break
    assert noise is not None
    return noise


def _schedules(task: DatabaseTask) -> Iterator[tuple[int | None, tuple[int, ...], int]]:
    """Ways, rounds and parts in which noise is judged, from most to fewest tables.

    Noise decides only what the spec leaves open.
    """
    declared, most = options_of(task, RelationalOptions), _ROUNDS[0]
    fixed = (declared.workloads or most[0],) * (declared.rounds or len(most))
    free = declared.rounds is None and declared.workloads is None
    if declared.ways is None:
        yield None, most if free else fixed, _PARTS_OF_THREE
    for rounds in _ROUNDS if free else (fixed,):
        yield declared.ways or 2, rounds, _PARTS


def _clear(task: DatabaseTask, key: relations.ForeignKey, noise: LinkNoise, parts: int) -> bool:
    """Whether noise moves few enough rows in joint tables, on average over the candidates."""
    assert noise.tables is not None
    cells = mean_cells(task, key, candidates(task.schema, key, noise.ways), parts)
    partition = neighbours_of_joined(task, key).partition
    scale = noise.tables.scale(partition)
    moved = MEAN_NOISE * cells * scale / 2 / task.tables[key.table].data_rows
    return moved <= _NOISY


def mean_cells(
    task: DatabaseTask, key: relations.ForeignKey, tables: Sequence[Workload], parts: int
) -> float:
    """The mean number of cells of joint tables across a key; 1 if there are none."""
    sizes = {
        column.name: min(column.size, parts)
        for side in relations.joined_domain(task.schema, key)
        for column in side
    }
    cells = sum(math.prod(sizes[name] for name in table.names) for table in tables)
    return cells / len(tables) if tables else 1.0


def _noise(
    task: DatabaseTask,
    key: relations.ForeignKey,
    rounds: tuple[int, ...],
    ways: int | None,
    amount: Fraction,
    pure: bool,
) -> LinkNoise:
    """The noise of given rounds; of a single one without selection if that measures all tables.

    Where it leaves them clear in all parts.
    """
    possible = len(candidates(task.schema, key, ways))
    alpha = options_of(task, RelationalOptions).alpha or _SELECTING
    rounds = tuple(min(picks, possible) for picks in rounds) if possible else ()
    tables, likeness = sum(rounds), _likeness(task, key, amount, pure)
    alike = _LIKENESS if likeness else Fraction(0)
    degrees = DEGREES_ONLY if tables else 1 - alike
    rest = (1 - degrees - alike) * amount

    def noise(rounds: tuple[int, ...], alpha: Fraction) -> LinkNoise:
        each = rest / max(sum(rounds), 1)
        choice: Exponential | PermuteAndFlip | None = None
        if alpha:
            select = each * alpha
            choice = PermuteAndFlip(select) if pure else Exponential(exponent_of(select))
        measure = _count_noise(each * (1 - alpha), pure) if rounds else None
        number = _count_noise(degrees * amount, pure)
        return LinkNoise(number, choice, measure, rounds, ways, likeness)

    if possible * (1 - alpha) > tables:
        return noise(rounds, alpha)
    everything = noise((possible,) if possible else (), Fraction(0))
    clear = not possible or _clear(task, key, everything, MOST_PARTS)
    return everything if clear else noise(rounds, alpha)


def _count_noise(amount: Fraction, pure: bool) -> CountNoise:
    return DiscreteLaplace(amount) if pure else DiscreteGaussian(noise_multiplier(amount))


def _likeness(
    task: DatabaseTask, key: relations.ForeignKey, amount: Fraction, pure: bool
) -> CountNoise | None:
    """The noise of kinds of pairs of rows of one parent; None where it would drown them."""
    compared = relations.compared_attributes(task.schema, key)
    if not compared:
        return None
    noise = _count_noise(_LIKENESS * amount / len(compared), pure)
    parents = neighbours_of_table(task, relations.degree_table(key)).partition
    clear = CLEAR * noise.scale(parents) <= _OF_A_KIND * task.tables[key.parent].data_rows
    return noise if clear else None


def link_stages(task: DatabaseTask, key: relations.ForeignKey, noise: LinkNoise) -> Iterator[Stage]:
    """The stages of a relationship: degrees, pairs of rows, selections, joint tables."""
    parents = neighbours_of_table(task, relations.degree_table(key)).partition
    joined = neighbours_of_joined(task, key).partition
    link, tables = relations.joined_table(key), sum(noise.rounds)
    yield degrees_stage(task, key, noise.degrees)
    if noise.likeness:
        compared = relations.compared_attributes(task.schema, key)
        words = f"how alike two rows of {key.table} with the same '{key.column}' are, by attribute"
        counted = [(noise.likeness, len(compared))]
        yield counts_stage(f"{link}: {LIKENESS}", counted, parents, words)
    if noise.selection:
        yield Stage(
            f"{link}: {SELECT}",
            repeat(noise.selection.event(), tables),
            f"which joint tables across '{key.column}' fit worst, "
            f"{count_of(tables, 'choice')} in {count_of(len(noise.rounds), 'round')}",
        )
    if noise.tables:
        words = f"joint tables of attributes across '{key.column}', {tables} in all"
        yield counts_stage(f"{link}: {MEASURE}", [(noise.tables, tables)], joined, words)


def degrees_stage(task: DatabaseTask, key: relations.ForeignKey, noise: CountNoise) -> Stage:
    """The stage of the distribution of degrees of a relationship."""
    parents = neighbours_of_table(task, relations.degree_table(key)).partition
    return Stage(
        f"{relations.joined_table(key)}: {DEGREES}",
        noise.event(parents),
        f"how many rows of {key.parent} have none to {key.max_rows} of {key.table}, in groups; "
        f"noise of {count_of(figure(noise.scale(parents)), 'row')} a count",
    )


def neighbours_of_table(task: DatabaseTask, name: str) -> Neighbours:
    """The rows of a table behind the door that one unit changes."""
    return Neighbours(task.neighbours.relation, rows_changed(task.schema)[name])


def neighbours_of_joined(task: DatabaseTask, key: relations.ForeignKey) -> Neighbours:
    """The joined rows of a key that one unit changes: its own, if the reference is there."""
    if key.optional:
        return neighbours_of_table(task, relations.joined_table(key))
    return task.tables[key.table].neighbours


def exponent_of(rho: Fraction) -> Fraction:
    """The epsilon of a selection of bounded range that is rho-zCDP: rho = eps^2 / 8.

    Rounded down. Source: Cesar, Rogers (arXiv 2010.13981), lemma 3.4.
    """
    return Fraction(math.floor(math.sqrt(8 * rho) * (1 - _FLOAT_ERROR) * DIGITS), DIGITS)
