"""Attacks on the synthetic rows alone, by somebody who sees a release and rows like those in it.

Units of one population are divided: rows, persons, or rows with those that refer to them. Half are
the data, in which each of some rare units, the targets, is or is not, by a coin; the other half is
held out, and the next release has the halves exchanged. A release is made on the real path, and
only its rows are attacked, as by `cloister.evaluation.attacks`. Each unit, of the data and of a
release, is one row there: `cloister.evaluation.units`.

Scores of a target are compared with its mean over all releases: who attacks can make releases too
(Carlini et al., arXiv 2112.03570), and train a classifier on them: `cloister.audit.shadows`. Coins
are independent, so that those of all releases together bound epsilon from below.

What an attack shows depends on the tables. So the same attacks are made on the data themselves,
released as they are, and on fresh units of the population: what they achieve at most, and without
any release.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.audit import shadows
from cloister.audit.bounds import CONFIDENCE, epsilon_of_guesses
from cloister.audit.kept import Effort, TrialFile, made_here
from cloister.audit.tables import ROW, UNITS_OF, Population, drawn_population, population, rarest
from cloister.errors import PlanError
from cloister.evaluation import attacks, reconstruction, units
from cloister.models.protocol import Progress, silent
from cloister.models.registry import create, over_databases
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table
from cloister.schema.relations import Database
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table
from cloister.tasks.data.session import Session
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.data.tables import write_table
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

COPIES, FRESH = "the data as they are", "fresh units"
"""What is attacked beside methods: all that the attacks can show, and nothing."""

TARGETS = 40
"""Units whose membership a coin decides; half of them are a twentieth of the data."""

_AMONG = 20
"""Units of the population for each target, of which the rarest are targets."""

SCORES = {"distance": attacks.density_ratio, "cells": attacks.cell_excess}
"""By which membership of targets is guessed."""

TRAINED = "trained"
"""The score of a trained classifier, of the later half of releases."""

ATTACKS = {
    "attributes": attacks.infer_attributes,
    "rebuilt": reconstruction.rebuild_attributes,
    "nearer": attacks.nearer_to_fitted,
    "singled out": attacks.single_out,
}
"""What is right of anybody, and how much more often of fitted rows."""

_SIZES = ((400, None), (3_000, 20), (3_000, 5))
"""Units of the data, more where a method has no plan for as many; and how many rows are drawn."""

_GUESSED = (0.05, 0.25, 1.0)
"""Shares of the targets whose membership is guessed, the clearest: each a bound of its own."""

_WRONG = 0.1
"""How often an attack may take others for members, where its hits are counted."""


@dataclass(frozen=True)
class RowAttack:
    """What is attacked: a method at a budget, or `COPIES` or `FRESH`; by a ``spec`` if given.

    The data are of so many ``units``, each of the kind ``unit`` or the spec's. As many rows as they
    have are drawn, or those ``drawn``.
    """

    method: str
    epsilon: str
    delta: str
    spec: Path | None = None
    unit: str = ROW
    units: int = _SIZES[0][0]
    drawn: int | None = None

    @classmethod
    def of(
        cls, method: str, epsilon: str, delta: str, spec: Path | None, unit: str | None = None
    ) -> RowAttack:
        """That with as few units as the method has a plan for: of the first kind that it takes.

        Raises:
            PlanError: it has none.
            InputError: it cannot be used for such units, or the spec cannot.
        """
        if spec:
            unit = load_spec(spec.absolute()).privacy.unit_name
        units_of_method = UNITS_OF[create(method).of_database]
        attack = cls(method, epsilon, delta, spec and spec.absolute(), unit or units_of_method[0])
        *first, last = [replace(attack, units=units, drawn=drawn) for units, drawn in _SIZES]
        for sized in first:
            try:
                made_here(Field, sized)
            except PlanError:
                continue
            return sized
        made_here(Field, last)
        return last

    def controls(self) -> list[RowAttack]:
        """The same attack on what shows all and nothing."""
        fewest, _ = _SIZES[0]
        return [replace(self, method=name, units=fewest, drawn=None) for name in (COPIES, FRESH)]

    def population(self) -> Population:
        """The data and others: two halves, units for reference, fresh ones, and the targets'."""
        sizes = self.units, 4 * self.units + _AMONG * TARGETS
        if self.spec:
            return drawn_population(self.spec, *sizes)
        return population(self.unit, *sizes)


class RowTrial(NamedTuple):
    """A release: of each target whether it was in the data, and its ``scores``; what else is right.

    ``features`` are what `cloister.audit.shadows` learns from, a list for each target. ``ordinary``
    is the area under the ROC curve of the membership of ordinary units; ``rates`` how often another
    attack is right of fitted ones, and of held-out ones.
    """

    number: int
    coins: list[bool]
    scores: dict[str, list[float]]
    features: list[list[float]]
    ordinary: float
    rates: dict[str, tuple[float, float]]
    seconds: float


class Field:
    """A population on the disk, and the releases of some of its units."""

    def __init__(self, attack: RowAttack, folder: Path) -> None:
        """Make the rows, and plan.

        Raises:
            PlanError: the method has no plan for so many.
            InputError: it cannot be used for them, or the spec cannot.
        """
        self._attack, self._folder = attack, folder
        self._home = Home.current({"CLOISTER_HOME": str(folder / "home")})
        self._request = resolve(
            ReleaseRequest(
                spec=attack.population().write(folder / "rows"),
                method="auto" if attack.method in (COPIES, FRESH) else attack.method,
                epsilon=attack.epsilon,
                delta=attack.delta,
                rows=attack.drawn,
            )
        )
        self._plan, context = plan_of(self._request), public_context_of(self._request)
        self._task, unit = context.task, context.spec.privacy.protected
        self._key, self._most_rows = getattr(unit, "key", None), getattr(unit, "max_rows", 1)
        tables = {
            name: read_table(table.spec, table.task.domain, None)[0]
            for name, table in context.tables.items()
        }
        self._population = self._by_unit(Database(self._task.schema, tables))
        self._rows = units.rows_of_units(self._population)
        numbers = np.arange(self._rows.rows)
        *parts, among = np.split(numbers, attack.units * np.arange(1, 5))
        self._halves, self._reference, self._fresh = parts[:2], self._rows.take(parts[2]), parts[3]
        self._targets = among[rarest(self._rows.take(among), TARGETS)]

    def trial(self, number: int) -> RowTrial:
        """The release of a number, attacked; the number decides on halves and coins."""
        started, rng = time.process_time(), np.random.default_rng(number)
        coins = rng.random(TARGETS) < 0.5
        halves = self._halves[number % 2], self._halves[1 - number % 2]
        shown = self._released(self._members(halves[0], coins), number)
        targets, (fitted, apart) = self._rows.take(self._targets), map(self._rows.take, halves)
        scores = {
            name: score(targets, shown, self._reference).tolist() for name, score in SCORES.items()
        }
        features = shadows.features_of(targets, shown, self._reference).tolist()
        ordinary = [attacks.density_ratio(rows, shown, self._reference) for rows in (fitted, apart)]
        advantages = {name: attack(fitted, apart, shown) for name, attack in ATTACKS.items()}
        rates = {name: (each.fitted, each.held_out) for name, each in advantages.items()}
        seconds = time.process_time() - started
        area = attacks.Membership.of(*ordinary).auc
        return RowTrial(number, coins.tolist(), scores, features, area, rates, seconds)

    def _by_unit(self, database: Database) -> Database:
        """The tables, with that of persons before them where persons are units."""
        if not self._key:
            return database
        return units.with_persons(database, self._key, self._most_rows)

    def _members(self, half: Integers, coins: Booleans) -> Integers:
        """Ordinary units and the targets that are in; fresh ones in place of others if replaced."""
        members = [half, self._targets[coins]]
        if self._task.neighbours.relation is Relation.REPLACE_ONE:
            members.append(self._fresh[np.flatnonzero(~coins)])
        return np.concatenate(members)

    def _released(self, members: Integers, number: int) -> Table:
        """The units of a release of some units, a row each."""
        if self._attack.method == COPIES:
            return self._rows.take(members)
        if self._attack.method == FRESH:
            rng = np.random.default_rng([number, 1])
            return self._rows.take(self._fresh[rng.integers(0, len(self._fresh), len(members))])
        chosen = np.isin(np.arange(self._rows.rows), members)
        data = units.part_of_units(self._population, chosen).tables
        for name in self._task.tables:
            write_table(data[name], self._folder / "rows" / f"{name}.parquet")
        source = TablesSource.fitting(self._request, self._plan)
        method, journal_folder = self._request.method, self._folder / f"journal-{number}"
        with Session(source) as session:
            rows = session.open(f"r-{number}", self._request, self._home).rows.value
            with Journal.open(journal_folder, {"run": "audit"}) as journal:
                door = source.door(rows, self._task, self._plan.event, journal, self._home)
                synthesizer = over_databases(create(method))
                model = synthesizer.train(door, self._task, self._plan)
                model = synthesizer.weigh(door, self._task, self._plan, model)
        shutil.rmtree(journal_folder)
        drawn = model.sample(self._request.rows, SamplingSource(number))
        return units.rows_of_units(self._by_unit(drawn))


class Mean(NamedTuple):
    """The mean of a figure over releases, and half of its 95 % interval."""

    value: float
    margin: float

    @classmethod
    def of(cls, figures: Floats) -> Mean:
        """That of the figures (n,) of releases."""
        deviation = float(figures.std(ddof=1)) / len(figures) ** 0.5
        return cls(float(figures.mean()), attacks.NORMAL_95 * deviation)


@dataclass(frozen=True)
class RowsShown:
    """What attacks on the rows of all releases show.

    Of the targets, by each score: the ``membership``, and the ``hits``: how often it takes members
    for such where it takes a tenth of the others; ``epsilon`` is what the coins told right need at
    least. Of ``ordinary`` units: the area of the membership; by each other attack how often it is
    right of fitted and of held-out ones, its ``rates``, and by how much more of the first, its
    ``leakage``.
    """

    attack: RowAttack
    releases: int
    membership: dict[str, attacks.Membership]
    hits: dict[str, float]
    epsilon: float
    ordinary: Mean
    rates: dict[str, tuple[float, float]]
    leakage: dict[str, Mean]
    seconds: float

    @classmethod
    def of(cls, attack: RowAttack, trials: Sequence[RowTrial]) -> RowsShown:
        """That of four releases or more."""
        scores = _scored(trials)
        sides = {name: (score[coin], score[~coin]) for name, (score, coin) in scores.items()}
        rates = {name: np.array([trial.rates[name] for trial in trials]) for name in ATTACKS}
        return cls(
            attack,
            len(trials),
            {name: attacks.Membership.of(*side) for name, side in sides.items()},
            {name: _hits(*side) for name, side in sides.items()},
            _epsilon(list(scores.values()), float(attack.delta)),
            Mean.of(np.array([trial.ordinary for trial in trials])),
            {name: tuple(each.mean(axis=0).tolist()) for name, each in rates.items()},
            {name: Mean.of(each[:, 0] - each[:, 1]) for name, each in rates.items()},
            sum(trial.seconds for trial in trials),
        )

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        attack = {name: str(value) for name, value in asdict(self.attack).items() if value}
        means = {name: mean._asdict() for name, mean in self.leakage.items()}
        return asdict(self) | {
            "attack": attack,
            "ordinary": self.ordinary._asdict(),
            "leakage": means,
            "code": code_version(),
        }


def _hits(members: Floats, outsiders: Floats) -> float:
    return float((members > np.quantile(outsiders, 1 - _WRONG)).mean())


def _scored(trials: Sequence[RowTrial]) -> dict[str, tuple[Floats, Booleans]]:
    """The scores of targets (releases, targets) by name, and whether they were in the data."""
    coins = np.array([trial.coins for trial in trials])
    halves = np.array([trial.number for trial in trials]) % 2
    scored = {
        name: (shadows.calibrated(np.array([t.scores[name] for t in trials]), halves), coins)
        for name in SCORES
    }
    features = shadows.calibrated(np.array([trial.features for trial in trials]), halves)
    later = shadows.trained_scores(features, coins)
    return scored | {TRAINED: (later, coins[-len(later) :])}


def _epsilon(scored: Sequence[tuple[Floats, Booleans]], delta: float) -> float:
    """The largest bound of the clearest guesses by each score."""
    chance = (1 - CONFIDENCE) / (len(scored) * len(_GUESSED))
    bounds = []
    for score, coins in scored:
        order = np.argsort(-np.abs(score), axis=None)
        right = ((score > 0) == coins).ravel()[order]
        for share in _GUESSED:
            guesses = int(np.ceil(share * coins.size))
            known = int(right[:guesses].sum()), guesses, coins.size
            bounds.append(epsilon_of_guesses(*known, delta, chance))
    return max(bounds)


def attack_rows(
    attacks: Sequence[RowAttack], effort: Effort, home: Home, advance: Progress = silent
) -> Iterator[RowsShown]:
    """What so many releases of each attack show.

    Those of an earlier call with the same code are kept in the home, and count. ``advance`` is
    called with the releases made, and with all.
    """
    share = replace(effort, seconds=effort.seconds / len(attacks))
    total = len(attacks) * effort.trials
    with effort.pool() as pool:
        for number, attack in enumerate(attacks):
            file = TrialFile.of(attack, RowTrial, home, "rows-")
            for done, _ in file.fill(pool, partial(_run, attack), share):
                advance(number * effort.trials + min(done, effort.trials), total)
            yield RowsShown.of(attack, file.read())


def _run(attack: RowAttack, numbers: Sequence[int]) -> list[RowTrial]:
    return [made_here(Field, attack).trial(number) for number in numbers]
