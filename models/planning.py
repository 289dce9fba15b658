"""What the plans of several methods share; public.

The schema sequence, the joint tables that hard constraints need, whether rows are drawn inside
feasible sets or one after the other, and whether a budget is enough.

Source of the sequence: Kamino Algorithm 4; section 4.3 for very large domains, which come last and
    are drawn from independent noisy histograms inside the feasible sets.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cloister.constraints import DenialConstraint, functional_dependency, key_attributes, order_rule
from cloister.errors import PlanError
from cloister.figures import count_of, figure
from cloister.models.core.bins import MOST_VALUES, NUMERIC_BINS
from cloister.models.core.budget_split import CountNoise
from cloister.models.task import Budget, RowSampling, Task
from cloister.privacy.accounting.accountants import zcdp_rho
from cloister.schema.columns import Grid
from cloister.schema.declarations import Sampling
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

NETWORKED_LEVELS = 256
"""Levels of an attribute at most, to be modelled jointly with others."""

_JOINT_CELLS = 1_000_000
"""Cells of a joint table at most."""

_ROWS_PER_LEFT = 5
"""Rows for each joint level of the left side (all attributes but the last) at least, on average."""

SEQUENTIAL: Sampling = "sequential"

SUPPORTS: Sampling = "supports"

_WORDS: Mapping[Sampling, str] = {
    SUPPORTS: "inside feasible sets",
    SEQUENTIAL: "one after the other",
}

_IN_TURN = 1e-4
"""Seconds for each row and soft constraint that it is drawn against: two rules on Adult."""

_ON_TRIAL = 9_000
"""Rows of the tables that are drawn on trial."""

_NONE = "there is no soft constraint, and rows inside feasible sets keep the hard ones"

_USUAL = "rows inside feasible sets are independent, and are drawn in linear time"


_PARTS = 8
"""Parts of an attribute in a typical joint table."""

_NOISIEST = 4
"""Least ratio of the rows to the scale of a count's noise, in rows."""

_STEPS_TO_DOUBLE = 16
"""Epsilons tried between one and its double: a message needs no more."""

_MOST_DOUBLINGS = 60
"""Most doublings of an epsilon that is too small."""


def public_sizes(domain: Domain, most: int = NUMERIC_BINS) -> dict[str, int]:
    """The greatest number of bins of each modelled attribute; about ``most`` of numeric ones."""
    sizes = {}
    for name in domain.modelled:
        column = domain[name]
        cells = declared_cells(column).size
        apart = 2 * len(column.special_codes) + 2 if isinstance(column, Grid) else 0
        sizes[name] = min(cells, most + apart) if isinstance(column, Grid) else cells
    return sizes


def schema_sequence(
    sizes: Mapping[str, int], constraints: Sequence[DenialConstraint]
) -> tuple[str, ...]:
    """Attributes of functional dependencies first, smaller left sides before larger.

    Left sides are as large as the product of their attributes. Then those that rules on single rows
    tie to several others, which then depend on them; then the rest by size.

    Attributes of more than ``NETWORKED_LEVELS`` levels come last, in the same order among
    themselves.
    """
    tied: dict[str, set[str]] = {name: set() for name in sizes}
    for names in ({*rule.attributes} for rule in constraints if rule.arity == 1):
        for name in names & tied.keys():
            tied[name] |= names - {name}
    hubs = [name for name in sizes if len(tied[name]) > 1]
    hubs.sort(key=lambda name: (-len(tied[name]), sizes[name]))
    return _sequence(sizes, constraints, _product, hubs)


def printed_sequence(
    sizes: Mapping[str, int], constraints: Sequence[DenialConstraint]
) -> tuple[str, ...]:
    """As :func:`schema_sequence`, with left sides as large as their smallest attribute.

    Source: Kamino section 4.3, as printed.
    """
    return _sequence(sizes, constraints, _least)


def _sequence(
    sizes: Mapping[str, int],
    constraints: Sequence[DenialConstraint],
    size_of_left: Callable[[Mapping[str, int], Sequence[str]], float],
    early: Sequence[str] = (),
) -> tuple[str, ...]:
    dependencies = [d for c in constraints if (d := functional_dependency(c)) is not None]
    modelled = [d for d in dependencies if all(name in sizes for name in (*d[0], d[1]))]
    sequence: list[str] = []
    for left, right in sorted(modelled, key=lambda dependency: size_of_left(sizes, dependency[0])):
        sequence += [*sorted(left, key=sizes.__getitem__), right]
    sequence += [*early, *sorted(sizes, key=sizes.__getitem__)]
    unique = dict.fromkeys(sequence)
    return tuple(sorted(unique, key=lambda name: sizes[name] > NETWORKED_LEVELS))


def count_networked(sizes: Mapping[str, int]) -> int:
    """How many attributes, from the front of the sequence, are modelled jointly."""
    return sum(size <= NETWORKED_LEVELS for size in sizes.values())


def _least(sizes: Mapping[str, int], names: Sequence[str]) -> float:
    return min((sizes[name] for name in names), default=1)


def _product(sizes: Mapping[str, int], names: Sequence[str]) -> float:
    product = 1.0
    for name in names:
        product *= sizes[name]
    return product


def valued_attributes(task: Task, by_value: Sequence[str]) -> tuple[str, ...]:
    """The numeric attributes whose single values matter, and are counted.

    Those in functional dependencies, in no other rule on pairs: there, bins hold.
    ``by_value`` are those whose single values are counted beside their cells.
    """
    pairs = [c for c in task.hard if c.arity == 2 and key_attributes(c) is None]
    dependent = [c for c in pairs if functional_dependency(c) is not None]
    binned = {name for c in pairs if c not in dependent for name in c.attributes}
    names = dict.fromkeys(name for c in dependent for name in c.attributes)
    return tuple(
        name
        for name in names
        if name not in binned
        and isinstance(column := task.domain[name], Grid)
        and (
            (name in by_value and not column.roundings)
            or declared_cells(column).size == column.size
        )
    )


def sizes_by_value(task: Task, sizes: Mapping[str, int], valued: Sequence[str]) -> dict[str, int]:
    """The greatest number of bins of each attribute, where values of some have bins."""
    return {
        name: max(size, min(declared_cells(task.domain[name]).column.size, MOST_VALUES))
        if name in valued
        else size
        for name, size in sizes.items()
    }


def wanted_tables(task: Task, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Attribute sets of hard constraints of small joint domains, left sides before right sides."""
    wanted = dict.fromkeys(names for c in task.hard if (names := _table_of(c)) is not None)
    known = [names for names in wanted if all(name in sizes for name in names)]
    return tuple(names for names in known if _affordable(names, sizes, task.data_rows))


def _table_of(constraint: DenialConstraint) -> tuple[str, ...] | None:
    dependency, order = functional_dependency(constraint), order_rule(constraint)
    if dependency is not None:
        return (*dependency[0], dependency[1])
    if order is not None:
        return (*order.equal, order.first, order.second)
    return (
        constraint.attributes if constraint.arity == 2 and len(constraint.attributes) > 1 else None
    )


def _affordable(names: Sequence[str], sizes: Mapping[str, int], rows: int) -> bool:
    lefts = math.prod(sizes[name] for name in names[:-1])
    return lefts * sizes[names[-1]] <= _JOINT_CELLS and lefts * _ROWS_PER_LEFT <= rows


@dataclass(frozen=True)
class SamplingChoice:
    """A way of drawing rows under soft constraints, why it is taken, and its options."""

    way: Sampling
    reason: str
    options: RowSampling

    @property
    def sequential(self) -> bool:
        """Whether rows are drawn one after the other (Kamino, Algorithm 3)."""
        return self.way == SEQUENTIAL

    def __str__(self) -> str:
        """The choice in words."""
        if not self.sequential:
            return f"inside feasible sets (supports): {self.reason}"
        options = [f"{100 * self.options.resampled:g} % of cells resampled"]
        if self.options.tries:
            options.append(
                f"accept-reject of {count_of(self.options.tries, 'try', 'tries')} a cell"
            )
        return f"row by row, by one processor ({', '.join(options)}): {self.reason}"


def seconds_in_turn(task: Task, choice: SamplingChoice) -> float:
    """Seconds that rows take longer to draw one after the other, with tables drawn on trial."""
    if not choice.sequential:
        return 0.0
    drawn = (1.0 + choice.options.resampled) * task.output_rows
    return _IN_TURN * len(task.soft) * (drawn + _ON_TRIAL)


def choose_sampling(task: Task, ways: Sequence[Sampling]) -> SamplingChoice:
    """The way that is asked for, or that a known weight needs, or else the method's usual one.

    ``ways`` are those of the method, the usual one first.

    Raises:
        PlanError: what is asked for contradicts itself or has no effect; names the remedy.
    """
    choice = _choice(task, ways[0])
    _require_sense(task, choice)
    if task.soft and choice.way not in ways:
        raise PlanError(
            f"sampling: {choice.way} ({choice.reason}) is not possible with this method, which "
            f"draws rows {_WORDS[ways[0]]}; use another method: "
            "cloister methods shows how each draws rows under soft constraints"
        )
    return choice


def _choice(task: Task, usual: Sampling) -> SamplingChoice:
    wanted, weighted = task.sampling, task.weighted_soft
    if wanted.way is not None:
        return SamplingChoice(wanted.way, "as asked for", wanted)
    if weighted:
        reason = f"soft constraint '{weighted[0].name}' has a known weight"
        return SamplingChoice(SEQUENTIAL, reason, wanted)
    if usual == SEQUENTIAL and task.soft:
        return SamplingChoice(SEQUENTIAL, "as the paper of the method does", wanted)
    return SamplingChoice(SUPPORTS, _USUAL if task.soft else _NONE, wanted)


def _require_sense(task: Task, choice: SamplingChoice) -> None:
    wanted, weighted = task.sampling, task.weighted_soft
    if choice.sequential and not task.soft:
        raise PlanError(
            "sampling: sequential draws rows by soft constraints, and none can act; make a "
            "constraint soft, or leave sampling out"
        )
    if not choice.sequential and weighted:
        raise PlanError(
            f"soft constraint '{weighted[0].name}' has a known weight, by which rows are drawn one "
            "after the other; leave sampling: supports out, or declare a rate"
        )
    if not choice.sequential and (wanted.resampled or wanted.tries):
        raise PlanError(
            "resample and accept_reject are options of sampling: sequential; add it, or leave "
            "them out"
        )


def epsilon_by_rho(budget: Budget, times: float) -> float:
    """The epsilon with ``times`` times less Gaussian noise, at the same delta.

    The smaller epsilon is relative to delta, the less the noise depends on it. At delta 0 as
    :func:`epsilon_in_proportion`.
    """
    if not budget.delta:
        return epsilon_in_proportion(budget, times)
    wanted = float(zcdp_rho(budget.epsilon, budget.delta)) * times**2
    steps = range(_MOST_DOUBLINGS * _STEPS_TO_DOUBLE)
    step = bisect.bisect_left(
        steps,
        wanted,
        key=lambda step: float(zcdp_rho(_raised(budget.epsilon, step), budget.delta)),
    )
    return float(_raised(budget.epsilon, step))


def _raised(epsilon: Fraction, step: int) -> Fraction:
    doublings, part = divmod(step, _STEPS_TO_DOUBLE)
    return epsilon * 2**doublings * (_STEPS_TO_DOUBLE + part) / _STEPS_TO_DOUBLE


def epsilon_in_proportion(budget: Budget, times: float) -> float:
    """The epsilon with ``times`` times less Laplace noise."""
    return float(budget.epsilon) * times


def wanted_budget(moved: float, tables: int, cells: float) -> Fraction:
    """What part of rho some tables get, in proportion to the parts of others; public.

    Noise moves a ``moved`` part of the rows / sqrt(rho) in each cell of each of the ``tables`` that
    share a rho, and this is where the sum of all that is moved is least.
    """
    return Fraction(math.ceil(10**9 * (moved * cells) ** (2 / 3) * tables ** (1 / 3)), 10**9)


def budget_of_rows(task: Task) -> Fraction:
    """What the rows of a task want: tables of all attributes, and of all pairs."""
    sizes = [min(column.size, _PARTS) for column in task.domain if column.kind != "key"]
    mean, moved = sum(sizes) / len(sizes), task.neighbours.max_rows / task.data_rows
    return wanted_budget(moved, math.comb(len(sizes) + 1, 2), mean**2)


def require_signal(
    noise: CountNoise,
    task: Task,
    budget: Budget,
    rows: int | None = None,
    needed: Callable[[Budget, float], float] = epsilon_by_rho,
) -> None:
    """Check that noise does not drown one-way counts of ``rows`` rows of the data, or all.

    ``needed`` gives the epsilon with a number of times less noise.

    Raises:
        PlanError: says what epsilon would do.
    """
    scale = noise.scale(task.neighbours.partition) * task.data_rows / (rows or task.data_rows)
    if scale * _NOISIEST > task.data_rows:
        least = needed(budget, scale * _NOISIEST / task.data_rows)
        raise PlanError(
            f"epsilon {figure(float(budget.epsilon), 6)} is too small for "
            f"{count_of(task.data_rows, 'row')}: the noise would drown the counts; use at least "
            f"about {figure(least, 2)}, or more rows"
        )


def require_delta(method: str, budget: Budget) -> None:
    """Check that there is a delta for Gaussian noise.

    Raises:
        PlanError: there is none.
    """
    if budget.delta <= 0:
        raise PlanError(
            f"method {method} adds Gaussian noise and needs a delta above 0; allow one, such as "
            "1e-6"
        )
