"""The parameter search of the mixture: from a budget and public sizes to every parameter of a fit; public."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cloister.errors import PlanError
from cloister.privacy.calibration import calibrate, concentrated
from cloister.privacy.events import Composed, Event, repeat
from cloister.privacy.selection import Exponential
from models.kamino.histograms import wide
from models.kamino.search import wanted_tables
from models.kamino.sequencing import public_sizes
from models.kamino.weighers import PairCounts
from models.mixture.rounds import MOST_CANDIDATES
from models.noise import counts_stage, require_signal
from models.protocol import Budget, Forecast, Plan, Stage, Task

HISTOGRAMS, LEAST_HISTOGRAMS, MOST_HISTOGRAMS = 0.20, 0.10, 0.35
JOINT_TABLES, PAIRS = 0.06, 0.06
SELECTING = 0.10
COMPONENTS, FEWEST = 800, 100
PRICE = 200.0
ROUNDS, MOST_ROUNDS, TYPICAL, GROWTH = 40, 200, 5_000.0, 0.26
STEPS, MOST_STEPS, FEWEST_STEPS, LAST_STEPS = 3_200, 80, 20, 600
GROUPS = 32
TYPICAL_CELLS = 400

WEIGHER = PairCounts()


@dataclass(frozen=True)
class Outline:
    """What a plan asks of the data, before the noise is known.

    ``wide`` attributes are counted value by value as well; ``joint`` are the tables of hard constraints.
    """

    task: Task
    sequence: tuple[str, ...]
    wide: tuple[str, ...]
    joint: tuple[tuple[str, ...], ...]
    rounds: int
    signal: float

    @property
    def parts(self) -> dict[str, tuple[float, int]]:
        """The part of the budget, as a share of rho, of each kind of query, and how many queries share it."""
        parts = {"histograms": (histograms_for(self.signal), len(self.sequence) + len(self.wide))}
        parts |= {"joint tables": (JOINT_TABLES, len(self.joint))} if self.joint else {}
        parts |= {"soft constraints": (PAIRS, 1)} if self.task.soft else {}
        if self.rounds:
            rest = 1.0 - sum(part for part, _ in parts.values())
            parts |= {"selection": (rest * SELECTING, self.rounds), "rounds": (rest * (1 - SELECTING), self.rounds)}
        whole = sum(part for part, _ in parts.values())
        return {name: (part / whole, times) for name, (part, times) in parts.items()}

    def levels(self, noise: Fraction) -> dict[str, Fraction]:
        """The noise multiplier of each kind of count, and the epsilon of one selection, at a level of noise.

        A level of noise stands for a rho of 1 / (2 noise^2), of which each kind of query has its part.
        """
        ratios = {name: _exact(math.sqrt(times / part)) for name, (part, times) in self.parts.items()}
        return {name: 2 / (noise * r) if name == "selection" else noise * r for name, r in ratios.items()}

    def stages(self, noise: Fraction) -> Iterator[Stage]:
        """The steps that meet the data, at a level of noise."""
        levels, times = self.levels(noise), {name: times for name, (_, times) in self.parts.items()}
        yield self._counts("histograms", levels, times, "one-way histograms of all attributes")
        if self.joint:
            listed = ", ".join(" x ".join(names) for names in self.joint)
            yield self._counts("joint tables", levels, times, f"joint tables of hard constraints: {listed}")
        if self.rounds:
            choice: Event = Exponential(levels["selection"]).event()
            yield Stage("selection", repeat(choice, self.rounds), "which joint table to measure next, round by round")
            yield self._counts("rounds", levels, times, "the joint tables chosen, one a round")
        if self.task.soft:
            yield WEIGHER.stage(self.task, levels["soft constraints"])

    def _counts(self, name: str, levels: Mapping[str, Fraction], times: Mapping[str, int], explanation: str) -> Stage:
        return counts_stage(self.task, name, levels[name], times[name], explanation)


def search(task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan:
    """The plan that spends just the budget.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    if budget.delta <= 0:
        raise PlanError("method cloister adds Gaussian noise and needs a delta above 0; allow one, such as 1e-6")
    rho = concentrated(budget.epsilon, budget.delta)
    signal = task.rows * math.sqrt(rho)
    joint = wanted_tables(task, public_sizes(task.domain, GROUPS))
    by_value = wide(task.domain, sequence, task.rows)
    outline = Outline(task, sequence, by_value, joint, rounds_for(signal, len(sequence)), signal)
    require_signal(float(outline.levels(_exact(math.sqrt(1 / (2 * rho))))["histograms"]), task.rows, budget)
    noise = calibrate(
        lambda level: Composed(tuple((stage.event, 1) for stage in outline.stages(level))),
        budget.epsilon,
        budget.delta,
        task.neighbours.relation,
    )
    levels = outline.levels(noise)
    parameters = {
        "noise": {name: str(level) for name, level in levels.items()},
        "counted by value": list(outline.wide),
        "joint tables": [list(names) for names in joint],
        "rounds": outline.rounds,
        "steps": steps_for(outline.rounds),
        "groups": GROUPS,
        "components": components_for(signal),
        "price": PRICE * signal / TYPICAL,
    }
    return Plan("cloister", sequence, tuple(outline.stages(noise)), parameters, _forecast(outline))


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
    wanted = HISTOGRAMS * (TYPICAL / signal) ** 0.25
    return min(max(wanted, LEAST_HISTOGRAMS), MOST_HISTOGRAMS)


def _exact(number: float) -> Fraction:
    return Fraction(math.ceil(number * 10**6), 10**6)


def _forecast(outline: Outline) -> Forecast:
    rounds, rows, attributes = outline.rounds, outline.task.rows, len(outline.sequence)
    tables = rounds * (steps_for(rounds) * rounds // 2 + LAST_STEPS)
    fit = components_for(outline.signal) * TYPICAL_CELLS * tables * 8e-10
    count = rows * min(math.comb(attributes, 2) + math.comb(attributes, 3), MOST_CANDIDATES) * 8e-9
    return Forecast(seconds=round(10 + fit + count, 1), memory=700_000_000 + rows * attributes * 40)
