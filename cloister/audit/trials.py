"""Releases of two neighbouring tables on the real path, many times, and kept.

A trial opens, validates, encodes and bounds the rows as the steps of a release do, and fits the
method through the real door, with a journal and secure noise of its own. What a release does beside
that (ledger, stores, certificate) queries nothing and is left out.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cloister.audit.bounds import Claim, Shown
from cloister.audit.doors import EchoJournal, HeardJournal, Losses, WatchedDatabase
from cloister.audit.tables import ROW, TABLES, Neighbouring, drawn_neighbours, neighbours
from cloister.figures import figure
from cloister.models.protocol import silent
from cloister.models.registry import create, over_databases
from cloister.privacy.door.table import PlanBudget
from cloister.privacy.events import Event, Parallel, Relation
from cloister.schema.relations import Database
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.data.session import Session
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.home.files import write_json
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.home.process import audit_version, code_version
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

LEVEL = 0.01
"""How likely a wrong alarm is: of an attack alone, or of all that are made together."""

_AT_ONCE = 20
"""Trials of a process before it reads the tables anew, and reports."""


@dataclass(frozen=True)
class Attack:
    """What is audited together: a method at a budget, on tables of a unit under a relation.

    ``kind`` is one of the unit's in `KINDS`. With a ``spec`` the tables are drawn by it instead.
    """

    method: str
    unit: str = ROW
    relation: Relation = Relation.ADD_REMOVE
    epsilon: str = "1"
    delta: str = "1e-6"
    kind: str = "rare"
    spec: Path | None = None

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
        return (
            f"{self.method}{where}: unit {self.unit}, {self.relation}, epsilon {self.epsilon}, "
            f"delta {self.delta}, {self.kind}"
        )

    def tables(self) -> Neighbouring:
        """The neighbouring tables."""
        if self.spec:
            return drawn_neighbours(self.spec)
        return neighbours(self.unit, self.relation, self.kind)


class Trial(NamedTuple):
    """One release: which table, its loss, what selections speak for, and what was not read."""

    with_unit: bool
    loss: float
    sharp: int
    unread: int
    unplanned: int


class Arena:
    """Two neighbouring tables in a temporary home, and the releases of them."""

    def __init__(self, attack: Attack, folder: Path) -> None:
        self._folder = folder
        self.home = Home.current({"CLOISTER_HOME": str(folder / "home")})
        self._requests = [
            resolve(
                ReleaseRequest(
                    spec=path, method=attack.method, epsilon=attack.epsilon, delta=attack.delta
                )
            )
            for path in attack.tables().write(folder)
        ]
        self.plan = plan_of(self._requests[0])
        self.task = public_context_of(self._requests[0]).task
        self._planned = planned_events(self.plan.event)

    @property
    def claim(self) -> Claim:
        """What the plan claims."""
        delta = float(self._requests[0].budget.delta)
        return Claim.of(self.plan.event, delta, self.task.neighbours.relation)

    def trials(self, worlds: Sequence[bool]) -> Iterator[Trial]:
        """A release of the table with the unit for each ``True``, of the other for others."""
        source = TablesSource.fitting(self._requests[0], self.plan)
        with Session(source) as session:
            rows = [
                session.open(f"r-{number}", request, self.home).rows.value
                for number, request in enumerate(self._requests)
            ]
            for number, with_unit in enumerate(worlds):
                yield self._trial(source, rows, self._folder / f"journal-{number}", with_unit)

    def _trial(
        self, source: TablesSource, rows: Sequence[Database], folder: Path, with_unit: bool
    ) -> Trial:
        with HeardJournal.open(folder, {"run": "audit"}) as journal:
            doors = [
                source.door(rows[index], self.task, self.plan.event, one, self.home)
                for index, one in (
                    (int(with_unit), journal),
                    (int(not with_unit), EchoJournal(journal)),
                )
            ]
            watched = WatchedDatabase(doors[0], doors[1], with_unit)
            method = over_databases(create(self._requests[0].method))
            model = method.train(watched, self.task, self.plan)
            method.weigh(watched, self.task, self.plan, model)
            unplanned = unpaid(watched.losses, self._planned, journal.recorded)
        shutil.rmtree(folder)
        losses = watched.losses
        return Trial(with_unit, losses.total, losses.sharp, losses.unread, unplanned)


def planned_events(event: Event) -> Counter[Event]:
    """Every event of a plan, those of disjoint parts too, with their number."""
    budget = PlanBudget(event)
    for part in [part for part in budget.remaining if isinstance(part, Parallel)]:
        budget.divide(len(part.parts))
    return Counter(budget.remaining)


def unpaid(losses: Losses, planned: Counter[Event], recorded: int) -> int:
    """Answers that the plan does not pay for, or whose query was not seen."""
    seen = sum(losses.asked.values())
    return sum((losses.asked - planned).values()) + max(recorded - seen, 0)


@dataclass(frozen=True)
class Audited:
    """What the trials of an attack show, and what its plan claims, as a mu."""

    attack: Attack
    claimed: float
    shown: Shown

    @property
    def alarm(self) -> bool:
        """Whether more is shown than is claimed, at the level of one attack alone."""
        return self.shown.p_value < LEVEL

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        attack = {name: str(value) for name, value in asdict(self.attack).items() if value}
        return {"attack": attack, "claimed": self.claimed, "shown": asdict(self.shown)} | {
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
            "chance of as much": shown.p_value,
            "answers not read": shown.unread,
            "answers not paid for": shown.unplanned,
            "result": more,
        }


def carry_out(
    attack: Attack,
    trials: int,
    home: Home,
    advance: Callable[[int, int], None] = silent,
    processes: int | None = None,
) -> Audited:
    """What so many trials of an attack show, half of them of either table.

    Trials of an earlier call with the same code are kept in the home, and count; so is the result.

    Raises:
        InputError: the method cannot be used for the tables.
        PlanError: it has no plan there.
    """
    with tempfile.TemporaryDirectory(prefix="cloister-audit-") as folder:
        claim = Arena(attack, Path(folder)).claim
    path = private_folder(home.folder / "audits") / f"{_key(attack)}.jsonl"
    done = _read(path)
    missing = [index % 2 == 1 for index in range(len(done), trials)]
    chunks = [missing[start : start + _AT_ONCE] for start in range(0, len(missing), _AT_ONCE)]
    for chunk in _in_processes(attack, chunks, processes or len(os.sched_getaffinity(0))):
        _append(path, chunk)
        done += chunk
        advance(len(done), trials)
    audited = Audited(attack, claim.mu, shown(claim, done))
    write_json(path.with_suffix(".json"), audited.to_json())
    return audited


def shown(claim: Claim, trials: Sequence[Trial]) -> Shown:
    """What trials show."""
    columns = [np.array(column) for column in zip(*trials, strict=True)]
    return Shown.of(
        claim,
        columns[0],
        columns[1],
        columns[2],
        unread=int(columns[3].max()),
        unplanned=int(columns[4].sum()),
    )


def _key(attack: Attack) -> str:
    fields = json.dumps({**asdict(attack), "code": audit_version()}, sort_keys=True, default=str)
    return hashlib.sha256(fields.encode()).hexdigest()[:16]


def _in_processes(
    attack: Attack, chunks: Sequence[Sequence[bool]], processes: int
) -> Iterator[list[Trial]]:
    if processes == 1 or len(chunks) < 2:
        yield from (_run(attack, chunk) for chunk in chunks)
        return
    with ProcessPoolExecutor(processes, get_context("forkserver")) as pool:
        running = [pool.submit(_run, attack, chunk) for chunk in chunks]
        try:
            for each in as_completed(running):
                yield each.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _run(attack: Attack, worlds: Sequence[bool]) -> list[Trial]:
    return list(_arena(attack).trials(worlds))


@lru_cache(maxsize=1)
def _arena(attack: Attack) -> Arena:
    """The arena of this process, whose folder goes when it ends."""
    folder = tempfile.TemporaryDirectory(prefix="cloister-audit-")
    arena = Arena(attack, Path(folder.name))
    arena.temporary = folder  # type: ignore[attr-defined]
    return arena


def _read(path: Path) -> list[Trial]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Trial(*json.loads(line)) for line in lines]


def _append(path: Path, trials: Sequence[Trial]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(trial) + "\n" for trial in trials)
