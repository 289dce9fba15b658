"""Releases of two neighbouring tables on the real path, many times, and kept.

A trial opens, validates, encodes and bounds the rows as the steps of a release do, and fits the
method through the real door, with a journal and secure noise of its own. What a release does beside
that (ledger, stores, certificate) queries nothing and is left out.
"""

from __future__ import annotations

import datetime as dt
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.audit.bounds import Claim, Shown, TradeOff, alarms, chance_of_repeats
from cloister.audit.doors import EchoJournal, HeardJournal, Losses, Repeats, WatchedDatabase, Worlds
from cloister.audit.kept import Effort, TrialFile, made_here
from cloister.audit.tables import (
    LEAST_ROWS,
    ROW,
    TABLES,
    Neighbouring,
    drawn_neighbours,
    neighbours,
)
from cloister.figures import figure
from cloister.models.protocol import Progress, ReusesNumbers, silent
from cloister.models.registry import create, over_databases
from cloister.privacy.door.table import PlanBudget
from cloister.privacy.events import Event, Parallel, Relation, repeat
from cloister.schema.relations import Database
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.data.session import Session
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.data.workers import Workers
from cloister.tasks.home.files import write_json
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

LEVEL = 0.01
"""How likely a wrong alarm is: of an attack alone, or of all that are made together."""


@dataclass(frozen=True)
class Attack:
    """What is audited together: a method at a budget, on tables of a unit under a relation.

    ``kind`` is one of the unit's in `KINDS`. With a ``spec`` the tables are drawn by it instead.
    They are of so many ``rows``; as many are requested, or those ``drawn``. A trial is a ``series``
    of so many releases, each of which reuses the numbers of the one before.
    """

    method: str
    unit: str = ROW
    relation: Relation = Relation.ADD_REMOVE
    epsilon: str = "1"
    delta: str = "1e-6"
    kind: str = "rare"
    spec: Path | None = None
    rows: int = LEAST_ROWS
    drawn: int | None = None
    series: int = 1

    @classmethod
    def of(cls, method: str, several: bool, epsilon: str, delta: str, spec: Path | None) -> Attack:
        """An attack of one of several tables, or of those of a spec."""
        attack = cls(method, epsilon=epsilon, delta=delta)
        if spec is not None:
            declared = load_spec(spec.absolute())
            unit, relation = declared.privacy.unit_name, Relation(declared.privacy.relation)
            return replace(
                attack, unit=unit, relation=relation, kind="rarest", spec=spec.absolute()
            )
        return replace(attack, unit=TABLES, kind="most children") if several else attack

    def __str__(self) -> str:
        where = f" of {self.spec.name}" if self.spec else ""
        series = f", {self.series} releases in a series" if self.series > 1 else ""
        return (
            f"{self.method}{where}: unit {self.unit}, {self.relation}, epsilon {self.epsilon}, "
            f"delta {self.delta}, {self.kind}{series}"
        )

    def tables(self) -> Neighbouring:
        """The neighbouring tables."""
        if self.spec:
            return drawn_neighbours(self.spec)
        return neighbours(self.unit, self.relation, self.kind, self.rows)


class Trial(NamedTuple):
    """A release: its table, loss, how noise was drawn, what was not read, and its time."""

    with_unit: bool
    loss: float
    nearness: float
    farness: float
    drawn: int
    agreed: int
    spread: int
    unread: int
    unplanned: int
    seconds: float

    @classmethod
    def of(cls, with_unit: bool, losses: Losses, unplanned: int, seconds: float = 0) -> Trial:
        """That of the losses of a release."""
        noise = losses.nearness, losses.farness, losses.drawn
        signs = losses.repeats.agreed, losses.repeats.spread
        unplanned += losses.unpaid
        return cls(with_unit, losses.total, *noise, *signs, losses.unread, unplanned, seconds)


class Arena:
    """Two neighbouring tables in a temporary home, and the releases of them.

    The rows are with ``workers``, if there are any.
    """

    workers: Workers | None = None

    def __init__(self, attack: Attack, folder: Path) -> None:
        self._attack, self._folder = attack, folder
        self.home = Home.current({"CLOISTER_HOME": str(folder / "home")})
        self._requests = [
            resolve(
                ReleaseRequest(
                    spec=path,
                    method=attack.method,
                    epsilon=attack.epsilon,
                    delta=attack.delta,
                    rows=attack.drawn,
                )
            )
            for path in attack.tables().write(folder)
        ]
        self.plan = plan_of(self._requests[0])
        self.task = public_context_of(self._requests[0]).task
        self._planned = planned_events(self.plan.event)

    @property
    def claim(self) -> Claim:
        """What the plans of all releases of a trial claim together."""
        delta = float(self._requests[0].budget.delta)
        event = repeat(self.plan.event, self._attack.series)
        return Claim.of(event, delta, self.task.neighbours.relation)

    def trials(self, worlds: Sequence[bool]) -> Iterator[Trial]:
        """A trial of the table with the unit for each ``True``, of the other for others."""
        source = TablesSource.fitting(self._requests[0], self.plan, self.workers)
        with Session(source) as session:
            rows = [
                session.open(f"r-{number}", request, self.home).rows.value
                for number, request in enumerate(self._requests)
            ]
            signs: Sequence[Integers] = ()
            for with_unit in worlds:
                fitted, beside = rows if not with_unit else rows[::-1]
                losses, model, unplanned = Losses(repeats=Repeats(signs)), None, 0
                started = time.process_time()
                for number in range(self._attack.series):
                    before = losses.events.copy()
                    model, queries = self.release(
                        source, (fitted, beside), number, Worlds(with_unit, losses), model
                    )
                    events = losses.events - before
                    unplanned += sum((events - self._planned).values())
                    unplanned += max(queries - events.total(), 0)
                shutil.rmtree(self._folder / "journals")
                signs = losses.repeats.signs
                yield Trial.of(with_unit, losses, unplanned, time.process_time() - started)

    def release(
        self,
        source: TablesSource,
        rows: tuple[Database, Database],
        number: int,
        seen: Worlds,
        previous: Any,
    ) -> tuple[Any, int]:
        """The model of a release, which follows a previous one, and the queries of its journal.

        ``rows`` are those that are fitted, and those of the neighbouring table.
        """
        folder = self._folder / "journals" / str(number)
        with HeardJournal.open(folder, {"run": "audit"}) as journal:
            doors = (
                source.door(each, self.task, self.plan.event, one, self.home)
                for each, one in zip(rows, (journal, EchoJournal(journal)), strict=True)
            )
            watched = WatchedDatabase(next(doors), next(doors), seen)
            created = create(self._requests[0].method)
            if previous is not None:
                created = cast("ReusesNumbers", created).following(previous.model)
            method = over_databases(created)
            model = method.train(watched, self.task, self.plan)
            return method.weigh(watched, self.task, self.plan, model), journal.queries


def planned_events(event: Event) -> Counter[Event]:
    """Every event of a plan, those of disjoint parts too, with their number."""
    budget = PlanBudget(event)
    for part in [part for part in budget.remaining if isinstance(part, Parallel)]:
        budget.divide(len(part.parts))
    return Counter(budget.remaining)


@dataclass(frozen=True)
class Audited:
    """What the trials of an attack show, and what its plan claims, as a mu and at each error."""

    attack: Attack
    claimed: float
    shown: Shown
    trade_off: TradeOff

    @property
    def alarm(self) -> bool:
        """Whether more is shown than is claimed, at the level of one attack alone."""
        return self.shown.p_value < LEVEL

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        attack = {name: str(value) for name, value in asdict(self.attack).items() if value}
        return {
            "attack": attack,
            "claimed": self.claimed,
            "shown": asdict(self.shown),
            "level": LEVEL,
            "alarm": self.alarm,
            "code": code_version(),
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
        }

    def facts(self) -> dict[str, Any]:
        """The result in words."""
        shown = self.shown
        more = "MORE IS SHOWN THAN IS CLAIMED" if self.alarm else "no more is shown than is claimed"
        return {
            "releases": shown.trials,
            "mu claimed": self.claimed,
            "mu shown": shown.mu,
            "mu shown at least": f"{figure(shown.mu_low)} (exactly {figure(shown.mu_free)})",
            "nearer to exact answers than said": f"{figure(shown.nearer)} standard deviations",
            "chance of answers as far from them": shown.farther,
            "chance of noise as much alike": shown.repeated,
            "chance of as much": shown.p_value,
            "answers not read": shown.unread,
            "answers not paid for": shown.unplanned,
            "result": more,
        }


def carry_out(
    attacks: Sequence[Attack], effort: Effort, home: Home, advance: Progress = silent
) -> Iterator[Audited]:
    """What the trials of each attack show, half of them of either table.

    Trials of an earlier call with the same code are kept in the home, and count; so are results.
    Each attack that lacks trials may take its share of the time that is left: what one does not
    need is for those after it. ``advance`` is called with the trials done, and with all.

    Raises:
        InputError: a method cannot be used for its tables.
        PlanError: it has no plan there.
    """
    left = effort.seconds
    with effort.pool() as pool:
        files = [TrialFile.of(attack, Trial, home) for attack in attacks]
        lacking = sum(len(file.read()) < effort.trials for file in files)
        for number, (attack, file) in enumerate(zip(attacks, files, strict=True)):
            claim = pool.submit(_claim, attack).result()
            before = number * effort.trials
            share = replace(effort, seconds=left / max(lacking, 1))
            lacking -= len(file.read()) < effort.trials
            for done, seconds in file.fill(pool, partial(_run, attack), share):
                left -= seconds
                advance(before + min(done, effort.trials), len(attacks) * effort.trials)
            trials = file.read()
            curve = TradeOff.of(claim, *_losses_of(trials))
            audited = Audited(attack, claim.mu, shown(claim, trials), curve)
            write_json(file.path.with_suffix(".json"), audited.to_json())
            yield audited


def alarmed(results: Sequence[Audited]) -> list[Audited]:
    """The results that show more than is claimed, at the level of all together."""
    raised = alarms([result.shown.p_value for result in results], LEVEL)
    return [result for result, alarm in zip(results, raised, strict=True) if alarm]


def shown(claim: Claim, trials: Sequence[Trial]) -> Shown:
    """What trials show."""
    return Shown.of(
        claim,
        *_losses_of(trials),
        nearer=sum(t.nearness for t in trials) / math.sqrt(max(sum(t.drawn for t in trials), 1)),
        farther=math.exp(min(-sum(t.farness for t in trials), 0.0)),
        repeated=chance_of_repeats(sum(t.agreed for t in trials), sum(t.spread for t in trials)),
        unread=max(trial.unread for trial in trials),
        unplanned=sum(trial.unplanned for trial in trials),
        seconds=sum(trial.seconds for trial in trials),
    )


def _losses_of(trials: Sequence[Trial]) -> tuple[Booleans, Floats]:
    """Which table each is of, and its loss."""
    return np.array([t.with_unit for t in trials]), np.array([t.loss for t in trials])


def _run(attack: Attack, numbers: Sequence[int]) -> list[Trial]:
    """Trials by number: odd ones have the unit."""
    return list(made_here(Arena, attack).trials([number % 2 == 1 for number in numbers]))


def _claim(attack: Attack) -> Claim:
    return made_here(Arena, attack).claim
