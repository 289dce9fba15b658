"""The plan of records made from seeds: three disjoint parts of the rows, and its forecast; public.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), sections 3.5 and 6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from cloister.errors import PlanError
from cloister.figures import count_of, figure
from cloister.models.deniability import network_plan
from cloister.models.deniability.paper import plan
from cloister.models.deniability.seeding import SeedParameters, choose_seeding
from cloister.models.planning import require_delta
from cloister.models.task import Budget, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.events import Relation
from cloister.privacy.queries.transformations import Split
from cloister.schema.partition import declared_cells

_MADE = 2e-7
"""Seconds per candidate and attribute: to draw it and look up its plausible seeds."""

_TESTED = 1e-5
"""Seconds per candidate: exact noise of its threshold."""

_INDEXED = 1.2e-7
"""Seconds per seed and attribute that may be kept: the counts of all prefixes."""

_FINISHED = 1e-7
"""Seconds per cell of a record that is made a row."""

STRUCTURE, PARAMETERS, SEEDS = "structure", "parameters", "seeds"
"""The parts of the rows: D_T, D_P and D_S."""

_SHARES = {STRUCTURE: Fraction(1, 5), PARAMETERS: Fraction(3, 10), SEEDS: Fraction(1, 2)}
"""The shares of the rows: the paper has 280,000, 280,000 and 735,000 of them.

Conditional tables need more rows than a structure.
"""

_LEAST_ROWS = 3
"""Least declared rows of a part."""


def forecast_records(fit: Forecast, task: Task, seeding: SeedParameters, seeds: int) -> Forecast:
    """Seconds and bytes of the network, and of making, testing and finishing the records."""
    attributes = len(task.domain.modelled)
    cells = seeding.candidates * attributes
    prefixes = seeds * seeding.kept[1]
    seconds = fit.seconds + (_MADE + _FINISHED) * cells + _INDEXED * prefixes
    seconds += _TESTED * seeding.candidates if seeding.epsilon0 else 0.0
    memory = fit.memory + 8 * attributes * seeds + 24 * prefixes + 24 * cells
    return Forecast(round(seconds, 1), memory)


@dataclass(frozen=True)
class DividedParts:
    """The disjoint parts of the rows that a plan reads, by name."""

    names: tuple[str, ...]

    @property
    def split(self) -> Split:
        """The split into them, in proportion to their shares."""
        whole = sum(_SHARES[name] for name in self.names)
        return Split(tuple(_SHARES[name] / whole for name in self.names))

    def rows(self, name: str, data_rows: int) -> int:
        """The declared rows of one part; 0 if the plan has no such part."""
        shares = dict(zip(self.names, self.split.shares, strict=True))
        return round(shares.get(name, Fraction(0)) * data_rows)


def divided_parts(stages: tuple[Stage, ...]) -> DividedParts:
    """The parts that stages read, in the order in which the door divides the rows."""
    return DividedParts(tuple(dict.fromkeys(stage.part for stage in stages if stage.part)))


@dataclass(frozen=True)
class DeniabilityParameters(Parameters):
    """The network, and how records are made with it and tested."""

    network: network_plan.NetworkParameters | plan.DeniabilityPaperParameters
    seeding: SeedParameters


@dataclass(frozen=True)
class PlannedNetwork:
    """The network's part of a plan."""

    stages: tuple[Stage, ...]
    parameters: network_plan.NetworkParameters | plan.DeniabilityPaperParameters
    forecast: Forecast
    mapped: Mapping[tuple[str, ...], float]


NetworkPlanner = Callable[
    [Task, tuple[str, ...], Budget, network_plan.PartRows, Stage], PlannedNetwork
]


def plan_deniability(
    method: str, task: Task, sequence: tuple[str, ...], budget: Budget, planner: NetworkPlanner
) -> Plan[DeniabilityParameters]:
    """The plan of network and records.

    Where one row may be in several parts, because it is replaced or a unit has several, all parts
    are charged together.

    Raises:
        PlanError: there is no delta, noise would drown the rows, or the records cannot be charged.
    """
    require_delta(method, budget)
    parts = _part_rows(task, sequence)
    probe = network_plan.Outline(task, sequence, parts)
    seeds = _parts_of(probe).rows(SEEDS, task.data_rows)
    seeding = choose_seeding(task, seeds, len(sequence), _shared(task, budget))
    records = records_stage(task, seeding)
    network = planner(replace(task, constraints=task.hard), sequence, budget, parts, records)
    return Plan(
        method,
        sequence,
        _ordered((*network.stages, records)),
        DeniabilityParameters(network.parameters, seeding),
        forecast_records(network.forecast, task, seeding, seeds),
        network.mapped,
    )


def plan_calibrated(
    task: Task,
    sequence: tuple[str, ...],
    budget: Budget,
    parts: network_plan.PartRows,
    records: Stage,
) -> PlannedNetwork:
    """The network with the least noise that the accountants allow in addition to the records."""
    outline = network_plan.Outline(task, sequence, parts)
    outline.require_signal(_shared(task, budget))
    noise = outline.split.calibrate(task, budget, (records,))
    parameters = outline.parameters(noise)
    forecast = network_plan.forecast_network_fit(task, parameters)
    return PlannedNetwork(outline.split.stages(noise), parameters, forecast, outline.mapped(noise))


def plan_printed(
    task: Task,
    sequence: tuple[str, ...],
    budget: Budget,
    parts: network_plan.PartRows,
    records: Stage,  # noqa: ARG001 - on other rows, or within its half of the budget
) -> PlannedNetwork:
    """The network with the noise of the paper."""
    stages, parameters = plan.plan_deniability_paper(task, sequence, _shared(task, budget), parts)
    sizes = [declared_cells(task.domain[name]).size for name in sequence]
    tables = sum(size * most for size, most in zip(sizes, plan.most_costs(sizes), strict=True))
    forecast = network_plan.forecast_printed(task, parts, len(sequence), tables)
    return PlannedNetwork(stages, parameters, forecast, {})


def records_stage(task: Task, seeding: SeedParameters) -> Stage:
    """The stage that makes and tests the records."""
    anew = [len(task.domain.modelled) - number for number in reversed(seeding.kept)]
    omega = f"{anew[0]} to {anew[1]}" if anew[0] < anew[1] else f"{anew[0]}"
    noise = (
        ""
        if not seeding.epsilon0
        else f", a threshold with noise of {count_of(figure(float(1 / seeding.epsilon0)), 'row')}"
    )
    several = task.neighbours.max_rows
    units = f" of {count_of(-(-seeding.k // several), 'unit')}" if several > 1 else ""
    words = (
        f"{seeding.candidates:,} candidate records, each made from a random row by drawing {omega} "
        f"attributes anew, released if {count_of(seeding.k, 'row')}{units} could have made it "
        f"about as likely (a factor of {float(seeding.gamma):g}){noise}"
    )
    return Stage("records", seeding.event(task), words, SEEDS)


def _part_rows(task: Task, sequence: tuple[str, ...]) -> network_plan.PartRows:
    """The declared rows of each part; none for structure if no attribute can have a parent."""
    parts = _parts_of(network_plan.Outline(task, sequence, network_plan.PartRows(1, 1)))
    structure, parameters = (parts.rows(n, task.data_rows) for n in (STRUCTURE, PARAMETERS))
    if min(parameters, parts.rows(SEEDS, task.data_rows)) < _LEAST_ROWS:
        raise PlanError(
            f"{task.data_rows} rows are too few for parts of structure, parameters and seeds; use "
            "method bayes, or more rows"
        )
    return network_plan.PartRows(structure, parameters, STRUCTURE, PARAMETERS)


def _parts_of(outline: network_plan.Outline) -> DividedParts:
    return DividedParts((*((STRUCTURE,) if outline.pairs else ()), PARAMETERS, SEEDS))


def _shared(task: Task, budget: Budget) -> Budget:
    """The budget of one part: all of it, or a share if one unit may be in several parts."""
    if task.neighbours.relation is Relation.ADD_REMOVE and task.neighbours.max_rows == 1:
        return budget
    return Budget(budget.epsilon / len(_SHARES), budget.delta / len(_SHARES))


def _ordered(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The stages in the order of their parts; one attribute alone has no structure."""
    order = {STRUCTURE: 0, PARAMETERS: 1, SEEDS: 2}
    return tuple(sorted(stages, key=lambda stage: order[stage.part or PARAMETERS]))
