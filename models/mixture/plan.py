"""The parameter search of the mixture: from a budget and public sizes to every parameter of a fit.

Public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cloister.errors import PlanError
from cloister.privacy.accounting.calibration import calibrate, concentrated
from cloister.privacy.events import Composed, Event, repeat
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.mechanisms.selection import Exponential
from cloister.schema.cells import declared_cells
from models.discretization.attribute_order import public_sizes
from models.discretization.histograms import wide
from models.kamino.weighers import PairCounts
from models.mixture.candidates import MOST_CANDIDATES
from models.planning.constraint_marginals import wanted_tables
from models.planning.noise import counts_stage, require_signal
from models.protocol import Budget, Forecast, Parameters, Plan, Stage, Task

HISTOGRAMS, LEAST_HISTOGRAMS, MOST_HISTOGRAMS = 0.12, 0.05, 0.45
JOINT_TABLES, PAIRS = 0.06, 0.06
SELECTING = 0.10
COMPONENTS, FEWEST = 800, 100
DEPENDENCE_PENALTY = 450.0
ROUNDS, MOST_ROUNDS, TYPICAL, GROWTH = 40, 200, 5_000.0, 0.26
STEPS, MOST_STEPS, FEWEST_STEPS, LAST_STEPS = 3_200, 80, 20, 600
GROUPS = 32
TYPICAL_CELLS = 400
EMPHASIS, MOST_EMPHATIC = 0.25, 128

WEIGHER = PairCounts()


@dataclass(frozen=True)
class MixtureParameters(Parameters):
    """Everything that a fit needs besides the task.

    ``noise`` holds the noise multiplier of each kind of count, and the epsilon of one selection;
    ``histogram_noise`` that of each attribute's histogram. ``by_value`` names the attributes whose
    single values are counted, ``joint_tables`` the attributes of each joint table of a hard
    constraint. After each of the ``rounds`` the fit takes ``steps``; ``dependence_penalty`` is what
    dependence costs it.
    """

    noise: Mapping[str, Fraction]
    histogram_noise: Mapping[str, Fraction]
    by_value: tuple[str, ...]
    joint_tables: tuple[tuple[str, ...], ...]
    rounds: int
    steps: int
    groups: int
    components: int
    dependence_penalty: float


@dataclass(frozen=True)
class Outline:
    """What a plan asks of the data, before the noise is known.

    ``emphasis`` is what the noise of each attribute's histogram is divided by; ``wide`` attributes
    are counted value by value as well; ``joint`` are the tables of hard constraints.
    """

    task: Task
    emphasis: Mapping[str, Fraction]
    wide: tuple[str, ...]
    joint: tuple[tuple[str, ...], ...]
    rounds: int
    signal: float

    @property
    def parts(self) -> dict[str, tuple[float, float]]:
        """The part of the budget, as a share of rho, of each kind of query, and how many queries share it."""
        histograms = sum(
            float(factor) ** 2 * (1 + (name in self.wide)) for name, factor in self.emphasis.items()
        )
        parts = {"histograms": (histograms_for(self.signal), histograms)}
        parts |= {"joint tables": (JOINT_TABLES, len(self.joint))} if self.joint else {}
        parts |= {"soft constraints": (PAIRS, 1)} if self.task.soft else {}
        if self.rounds:
            rest = 1.0 - sum(part for part, _ in parts.values())
            parts |= {
                "selection": (rest * SELECTING, self.rounds),
                "rounds": (rest * (1 - SELECTING), self.rounds),
            }
        whole = sum(part for part, _ in parts.values())
        return {name: (part / whole, times) for name, (part, times) in parts.items()}

    def levels(self, noise: Fraction) -> dict[str, Fraction]:
        """The noise multiplier of each kind of count, and the epsilon of one selection, at a level of noise.

        A level of noise stands for a rho of 1 / (2 noise^2), of which each kind of query has its
        part.
        """
        ratios = {
            name: _exact(math.sqrt(times / part)) for name, (part, times) in self.parts.items()
        }
        return {
            name: 2 / (noise * r) if name == "selection" else noise * r
            for name, r in ratios.items()
        }

    def stages(self, noise: Fraction) -> Iterator[Stage]:
        """The steps that meet the data, at a level of noise."""
        levels = self.levels(noise)
        yield self._histograms(levels["histograms"])
        if self.joint:
            listed = ", ".join(" x ".join(names) for names in self.joint)
            words = f"joint tables of hard constraints: {listed}"
            yield counts_stage(
                self.task, "joint tables", levels["joint tables"], len(self.joint), words
            )
        if self.rounds:
            choice: Event = Exponential(levels["selection"]).event()
            yield Stage(
                "selection",
                repeat(choice, self.rounds),
                "which joint table to measure next, round by round",
            )
            words = "the joint tables chosen, one a round"
            yield counts_stage(self.task, "rounds", levels["rounds"], self.rounds, words)
        if self.task.soft:
            yield WEIGHER.stage(self.task, levels["soft constraints"])

    def histogram_noise(self, level: Fraction) -> dict[str, Fraction]:
        """The noise multiplier of each attribute's histogram."""
        return {name: level / factor for name, factor in self.emphasis.items()}

    def _histograms(self, level: Fraction) -> Stage:
        partition = self.task.neighbours.partition
        mechanisms = {
            name: DiscreteGaussian(noise) for name, noise in self.histogram_noise(level).items()
        }
        events = [
            (mechanism.event(partition), 1 + (name in self.wide))
            for name, mechanism in mechanisms.items()
        ]
        scales = [mechanism.scale(partition) for mechanism in mechanisms.values()]
        words = "one-way histograms of all attributes, those of many cells with less noise"
        least, most = f"{min(scales):.3g}", f"{max(scales):.3g}"
        spread = least if least == most else f"{least} to {most}"
        return Stage(
            "histograms", Composed(tuple(events)), f"{words}; noise of {spread} rows a count"
        )


def search(task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan[MixtureParameters]:
    """The plan that spends just the budget.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    if budget.delta <= 0:
        raise PlanError(
            "method mixture adds Gaussian noise and needs a delta above 0; allow one, such as 1e-6"
        )
    rho = concentrated(budget.epsilon, budget.delta)
    signal = task.data_rows * math.sqrt(rho)
    joint = wanted_tables(task, public_sizes(task.domain, GROUPS))
    by_value = wide(task.domain, sequence, task.data_rows)
    emphasis = {name: emphasis_for(declared_cells(task.domain[name]).size) for name in sequence}
    outline = Outline(task, emphasis, by_value, joint, rounds_for(signal, len(sequence)), signal)
    require_signal(
        float(outline.levels(_exact(math.sqrt(1 / (2 * rho))))["histograms"]),
        task.data_rows,
        budget,
    )
    noise = calibrate(
        lambda level: Composed(tuple((stage.event, 1) for stage in outline.stages(level))),
        budget.epsilon,
        budget.delta,
        task.neighbours.relation,
    )
    levels = outline.levels(noise)
    parameters = MixtureParameters(
        noise=levels,
        histogram_noise=outline.histogram_noise(levels["histograms"]),
        by_value=outline.wide,
        joint_tables=joint,
        rounds=outline.rounds,
        steps=steps_for(outline.rounds),
        groups=GROUPS,
        components=components_for(signal),
        dependence_penalty=DEPENDENCE_PENALTY * signal / TYPICAL,
    )
    return Plan("mixture", sequence, tuple(outline.stages(noise)), parameters, _forecast(outline))


def rounds_for(signal: float, attributes: int) -> int:
    """Number of rounds, by rows times the square root of rho: more where the noise is small beside the rows."""
    possible = math.comb(attributes, 2) + math.comb(attributes, 3)
    wanted = round(ROUNDS * math.sqrt(attributes / 15) * (signal / TYPICAL) ** GROWTH)
    return min(max(wanted, 1), 2 * possible, MOST_ROUNDS)


def steps_for(rounds: int) -> int:
    """Steps of the fit after each round: fewer where a round adds little to what is known."""
    return max(STEPS // max(rounds, STEPS // MOST_STEPS), FEWEST_STEPS)


def components_for(signal: float) -> int:
    """Number of components: fewer where there is less to tell."""
    return min(max(round(COMPONENTS * math.sqrt(signal / TYPICAL)), FEWEST), COMPONENTS)


def histograms_for(signal: float) -> float:
    """The part of the budget that one-way histograms get: the more, the less there is."""
    wanted = HISTOGRAMS * (TYPICAL / signal) ** 0.6
    return min(max(wanted, LEAST_HISTOGRAMS), MOST_HISTOGRAMS)


def emphasis_for(cells: int) -> Fraction:
    """How many times less noise a histogram of so many cells gets than one of two.

    The noise of a histogram adds up over its cells, and costs its inverse square: the sum of the
    errors of all histograms would be least with the cube root of cells. Few cells of many matter,
    so it is the fourth root here.
    """
    return _exact(min(max(cells - 1, 1), MOST_EMPHATIC) ** EMPHASIS)


def _exact(number: float) -> Fraction:
    return Fraction(math.ceil(number * 10**6), 10**6)


def _forecast(outline: Outline) -> Forecast:
    rounds, rows, attributes = outline.rounds, outline.task.data_rows, len(outline.emphasis)
    tables = rounds * (steps_for(rounds) * rounds // 2 + LAST_STEPS)
    fit = components_for(outline.signal) * TYPICAL_CELLS * tables * 8e-10
    count = rows * min(math.comb(attributes, 2) + math.comb(attributes, 3), MOST_CANDIDATES) * 8e-9
    return Forecast(
        seconds=round(10 + fit + count, 1),
        memory=700_000_000 + max(rows, outline.task.output_rows) * attributes * 40,
    )
