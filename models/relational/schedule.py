"""What is asked of one relationship: its degrees, and rounds of selected joint tables.

Source: arXiv 2405.18670, algorithm 1: rounds of selections by the exponential mechanism, each
    followed by measurements. Exponents and noise follow from the sensitivities of the door's
    queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from cloister.figures import count_of, figure
from cloister.models.relational.candidates import candidates
from cloister.models.relational.parts import MOST_PARTS
from cloister.models.several_tables import DIGITS
from cloister.models.task import DatabaseTask, Stage
from cloister.privacy.accounting.accountants import noise_multiplier
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.noise import DiscreteGaussian, DiscreteLaplace, Neighbours
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip
from cloister.schema.relations import (
    ForeignKey,
    degree_table,
    joined_domain,
    joined_table,
    rows_changed,
)

DEGREES = "degrees"
"""The label of the noisy degree distribution of a relationship."""

SELECT, MEASURE = "select", "measure"
"""Labels of the rounds of a relationship."""

DEGREES_ONLY = Fraction(1, 10)
"""Part of a relationship's budget for its degrees: few counts, at a smaller sensitivity."""

_SELECTING = Fraction(1, 4)
"""Part alpha of a round for its selection; a wrong choice costs less than a noisy table."""

_ROUNDS = ((3, 3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1), (1,))
"""Rounds, each with the joint tables K that it selects and measures, from most to fewest.

A round selects by what the rounds before left unexplained.
"""

_DEPENDENCE = 0.25
"""Share of rows by which a joint table that is chosen is off before it is measured, typically."""

_NOISY = 2 / 3 * _DEPENDENCE
"""Share of rows that noise may move in a joint table, on average over the candidates.

Measuring k of N tables brings k / N of (dependence - noise), where noise grows with the root of k,
since the tables share one budget: the most where noise is 2/3 of dependence. Tried on the MovieLens
shape (docs/benchmarks/relational.md): errors differ little from half to twice as many tables.
"""

_NOISY_OF_THREE = 2 / 3 * _NOISY
"""The same where tables of three attributes are candidates, too.

They are many and have many cells, so selections and counts are noisier, and most of what they say
is in tables of two; where noise is small they add the rest. Tried: a half, which makes errors of
two attributes smaller and of three greater where tables are sparse.
"""

MEAN_NOISE = math.sqrt(2 / math.pi)
"""Mean of the absolute value of a normal of deviation 1: what noise alone makes a count differ."""

_FLOAT_ERROR = 1e-9
"""Relative error beyond that of a root in floating point, by which an epsilon is lowered."""

Noise = DiscreteGaussian | DiscreteLaplace


@dataclass(frozen=True)
class LinkNoise:
    """The mechanisms of one relationship.

    Each of ``rounds`` selects and measures so many joint tables, of ``ways`` attributes or, if it
    is None, of two and three. Without ``selection`` all are measured; where none can be there are
    no ``tables``.
    """

    degrees: Noise
    selection: Exponential | PermuteAndFlip | None
    tables: Noise | None
    rounds: tuple[int, ...]
    ways: int | None


def link_noise(task: DatabaseTask, key: ForeignKey, amount: Fraction, pure: bool) -> LinkNoise:
    """The noise of as many joint tables as the declared rows can bear, or as the spec says.

    One at least, if there are any. ``amount`` is an epsilon of ``pure`` privacy, else a rho.
    """
    found = None
    for ways, rounds, noisy in _schedules(task):
        found = _noise(task, key, rounds, ways, amount, pure)
        if found.tables is None or _moved(task, key, found.tables, ways) <= noisy:
            break
    assert found is not None
    return found


def _schedules(
    task: DatabaseTask,
) -> Iterator[tuple[int | None, tuple[int, ...], float]]:
    """Ways, rounds and the noise that they bear, from most to fewest tables.

    Noise decides only what the spec leaves open.
    """
    declared, most = task.relational, _ROUNDS[0]
    fixed = (declared.workloads or most[0],) * (declared.rounds or len(most))
    free = declared.rounds is None and declared.workloads is None
    if declared.ways is None:
        yield None, most if free else fixed, _NOISY_OF_THREE
    for rounds in _ROUNDS if free else (fixed,):
        yield declared.ways or 2, rounds, _NOISY


def _moved(task: DatabaseTask, key: ForeignKey, noise: Noise, ways: int | None) -> float:
    """The share of rows that noise moves in a joint table, on average over the candidates."""
    sizes = {
        column.name: min(column.size, MOST_PARTS)
        for side in joined_domain(task.schema, key)
        for column in side
    }
    found = candidates(task.schema, key, ways)
    cells = sum(math.prod(sizes[name] for name in own.names) for own in found) / len(found)
    partition = neighbours_of_table(task, joined_table(key)).partition
    return MEAN_NOISE * cells * noise.scale(partition) / 2 / task.tables[key.table].data_rows


def _noise(
    task: DatabaseTask,
    key: ForeignKey,
    asked: tuple[int, ...],
    ways: int | None,
    amount: Fraction,
    pure: bool,
) -> LinkNoise:
    """The noise of given rounds; of one without selection where all candidates need no more."""
    possible, alpha = len(candidates(task.schema, key, ways)), task.relational.alpha or _SELECTING
    everything = possible * (1 - alpha) <= sum(asked)
    if everything:
        asked, alpha = (possible,), Fraction(0)
    tables = sum(asked)
    degrees = DEGREES_ONLY if tables else Fraction(1)
    each = (1 - degrees) * amount / max(tables, 1)
    own, select, measure = degrees * amount, each * alpha, each * (1 - alpha)
    if pure:
        flip = None if everything else PermuteAndFlip(select)
        laplace = DiscreteLaplace(measure) if tables else None
        return LinkNoise(DiscreteLaplace(own), flip, laplace, asked, ways)
    choice = None if everything else Exponential(exponent_of(select))
    gaussian = DiscreteGaussian(noise_multiplier(measure)) if tables else None
    return LinkNoise(DiscreteGaussian(noise_multiplier(own)), choice, gaussian, asked, ways)


def link_stages(task: DatabaseTask, key: ForeignKey, noise: LinkNoise) -> Iterator[Stage]:
    """The stages of a relationship: degrees, selections, joint tables."""
    parents = neighbours_of_table(task, degree_table(key)).partition
    joined = neighbours_of_table(task, joined_table(key)).partition
    link, tables = joined_table(key), sum(noise.rounds)
    yield Stage(
        f"{link}: {DEGREES}",
        noise.degrees.event(parents),
        f"how many rows of {key.parent} have none, one, ... {key.max_rows} of {key.table}; "
        f"noise of {count_of(figure(noise.degrees.scale(parents)), 'row')} a count",
    )
    if noise.selection:
        yield Stage(
            f"{link}: {SELECT}",
            repeat(noise.selection.event(), tables),
            f"which joint tables across '{key.column}' fit worst, "
            f"{count_of(tables, 'choice')} in {count_of(len(noise.rounds), 'round')}",
        )
    if noise.tables:
        yield Stage(
            f"{link}: {MEASURE}",
            repeat(noise.tables.event(joined), tables),
            f"joint tables of attributes across '{key.column}', {tables} in all; noise of "
            f"{count_of(figure(noise.tables.scale(joined)), 'row')} a count",
        )


def neighbours_of_table(task: DatabaseTask, name: str) -> Neighbours:
    """The rows of a table behind the door that one unit changes."""
    return Neighbours(task.neighbours.relation, rows_changed(task.schema)[name])


def exponent_of(rho: Fraction) -> Fraction:
    """The epsilon of a selection of bounded range that is rho zero-concentrated: rho = eps^2 / 8.

    Rounded down. Source: Cesar, Rogers (arXiv 2010.13981), lemma 3.4.
    """
    return Fraction(math.floor(math.sqrt(8 * rho) * (1 - _FLOAT_ERROR) * DIGITS), DIGITS)
