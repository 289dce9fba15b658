"""The Bayesian network and plausible deniability, on the door, and what they guarantee.

A certificate has each guarantee of records made from seeds under its own name.

Source: Bindschaedler, Shokri, Gunter, "Plausible Deniability for Privacy-Preserving Data Synthesis"
    (VLDB 2017), definition 1 and theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloister.errors import UnsupportedEvent
from cloister.figures import figure_above
from cloister.models.deniability.network_plan import NETWORK_BINS, NetworkParameters, plan_network
from cloister.models.deniability.plan import (
    DeniabilityParameters,
    NetworkPlanner,
    plan_calibrated,
    plan_deniability,
    plan_printed,
)
from cloister.models.deniability.seeding import PLAUSIBLE_DENIABILITY, DeniabilityOptions
from cloister.models.planning import public_sizes, schema_sequence
from cloister.models.protocol import AnySynthesizer, Arrays, Progress, Synthesizer, silent
from cloister.models.task import Budget, Plan, Task
from cloister.privacy import events
from cloister.privacy.accounting import composition
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.certificate import certificate
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.attributes import Declared
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY

if TYPE_CHECKING:
    from cloister.models.deniability.network import NetworkModel
    from cloister.models.deniability.pool import DeniableModel

_DEFINITION = (
    "plausible deniability of each released record; this is NOT differential privacy of the table. "
    "Epsilon and delta are of the network that made the records, and of the rows it was learned "
    "from, alone"
)

_INSIDE = (
    "A record was released only if at least {k:,} of the rows that may be seeds{units}{noise} "
    "could have made it with probabilities that differ by a factor of at most {gamma}."
)
_UNITS = ", which belong to {units:,} privacy units or more,"
_NOISE = ", give or take the noise of the threshold,"
_COPIED = (
    "A record may keep values of one row, its seed: whoever knows that row may recognise them, but "
    "cannot say that this row, and none of the others, was the seed."
)
_ALONE = (
    "One released record, seen alone, is (epsilon {epsilon}, delta {delta})-private (Theorem 1 at "
    "t = {t}); this adds up over records."
)
_TOGETHER = (
    "All {candidates:,} candidates, those that were not released as well, are together (epsilon "
    "{epsilon}, delta {delta})-private."
)
_NOTHING = "No epsilon bounds what all {candidates:,} candidates together reveal of a row."
_NOT_DP = (
    "This release is NOT differentially private: the epsilon charged is that of the network alone, "
    "and protects the rows that it was learned from. Any row may be a seed instead, and a seed is "
    "protected by plausible deniability only."
)


class BayesSynthesizer(Synthesizer[NetworkParameters, "NetworkModel"]):
    """The network alone: every attribute is drawn anew, so that no row is a seed."""

    supports_conditionals = True
    weighs_soft = True
    keeps_counts = True
    name = "bayes"
    summary = "Bayesian network, of noisy distances of pairs from independence and noisy tables"

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence; the network puts parents before children."""
        return schema_sequence(public_sizes(task.domain, NETWORK_BINS), task.constraints)

    def search(
        self, task: Task, sequence: tuple[str, ...], budget: Budget
    ) -> Plan[NetworkParameters]:
        """The noise of all queries."""
        return plan_network(self.name, task, sequence, budget)

    def train(
        self, private: Door[TableRows], task: Task, plan: Plan[NetworkParameters]
    ) -> NetworkModel:
        """Histograms, structure, conditional tables; then the feasible sets."""
        from cloister.models.deniability.network_fit import NetworkDoors, NetworkFit

        doors = NetworkDoors(private, private)
        return NetworkFit(doors, task, plan.sequence, plan.parameters, self._progress).train()

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        plan: Plan[NetworkParameters],
        model: NetworkModel,
    ) -> NetworkModel:
        """Weights of soft constraints, from noisy counts of violating pairs."""
        from cloister.models.deniability.network_fit import weigh_network

        return weigh_network(private, task, plan.parameters, model)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> NetworkModel:
        """A model from its saved state."""
        from cloister.models.deniability.network import restore_network

        return restore_network(task, meta, arrays)


@dataclass(frozen=True)
class DeniabilityRecipe:
    """A way to make records from seeds: its name, and how it plans the network."""

    name: str
    summary: str
    planner: NetworkPlanner


DENIABILITY = DeniabilityRecipe(
    "deniability",
    "records made from random rows by a Bayesian network, released if many rows could have made "
    "them",
    plan_calibrated,
)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        DENIABILITY,
        DeniabilityRecipe(
            "deniability-paper",
            "deniability as its paper prints it: Laplace noise, advanced composition",
            plan_printed,
        ),
    )
}
"""The methods of this family that have seeds, by name."""


class DeniabilitySynthesizer(Synthesizer[DeniabilityParameters, "DeniableModel"]):
    """Records made from seeds by the network, each released if it passes a privacy test."""

    guarantees: tuple[str, ...] = (DIFFERENTIAL_PRIVACY, PLAUSIBLE_DENIABILITY)
    options: type[Declared] | None = DeniabilityOptions

    def __init__(
        self, progress: Progress = silent, recipe: DeniabilityRecipe | None = None
    ) -> None:
        self._progress, self._recipe = progress, recipe or DENIABILITY
        self.name, self.summary = self._recipe.name, self._recipe.summary

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence; the network puts parents before children."""
        return schema_sequence(public_sizes(task.domain, NETWORK_BINS), task.constraints)

    def search(
        self, task: Task, sequence: tuple[str, ...], budget: Budget
    ) -> Plan[DeniabilityParameters]:
        """The noise of the network, and how records are made and tested."""
        return plan_deniability(self.name, task, sequence, budget, self._recipe.planner)

    def train(
        self, private: Door[TableRows], task: Task, plan: Plan[DeniabilityParameters]
    ) -> DeniableModel:
        """The network, then the released records, and rows of the network in place of others."""
        from cloister.models.deniability.pool import fit_deniability

        return fit_deniability(private, task, plan, self._progress)

    def own_guarantees(
        self, event: events.Event, delta: Fraction, relation: events.Relation | str
    ) -> certificate.OwnGuarantees:
        """Those of the records."""
        return own_guarantees(event, delta, relation)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> DeniableModel:
        """A model from its saved state."""
        from cloister.models.deniability.pool import restore_pool

        return restore_pool(task, meta, arrays)


def synthesizer_of(name: str, progress: Progress) -> AnySynthesizer:
    """The method of a name."""
    if name == BayesSynthesizer.name:
        return BayesSynthesizer(progress)
    return DeniabilitySynthesizer(progress, RECIPES[name])


def own_guarantees(
    event: events.Event, delta: Fraction, relation: events.Relation | str
) -> certificate.OwnGuarantees:
    """A certificate's words on records made from seeds; empty without such records."""
    records = record_guarantees(event, delta, relation)
    if records is None:
        return certificate.OwnGuarantees()
    if records.guarantee == DIFFERENTIAL_PRIVACY:
        return certificate.OwnGuarantees(records, None, record_words(records))
    return certificate.OwnGuarantees(records, _DEFINITION, (_NOT_DP, *record_words(records)))


def record_guarantees(
    event: events.Event, delta: Fraction, relation: events.Relation | str
) -> certificate.RecordGuarantees | None:
    """Of one record, of all, and of the network, each at ``delta``; None if none has a seed.

    ``event`` is all that a release does.
    """
    records = next(iter(_records_in(event)), None)
    if records is None:
        return None
    deniable = isinstance(records, events.UncountedRecords)
    bounded = records.bounded if isinstance(records, events.UncountedRecords) else records
    return certificate.RecordGuarantees(
        guarantee=PLAUSIBLE_DENIABILITY if deniable else DIFFERENTIAL_PRIVACY,
        k=records.k,
        k_units=-(-records.k // records.rows),
        gamma=exact_text(records.gamma),
        candidates=records.candidates,
        one_record=_one(bounded, delta, events.Relation(relation)),
        all_candidates=_bound(bounded, delta, relation),
        network=_bound(_without_records(event), delta, relation),
    )


def _one(
    event: events.SeededRecords | None, delta: Fraction, relation: events.Relation
) -> certificate.RecordBound | None:
    """Theorem 1 for one released record, of a whole privacy unit."""
    if event is None:
        return None
    steps = composition.row_steps(event.rows, relation)
    best = composition.best_record_guarantee(
        event.k, event.gamma, event.epsilon0, float(delta), steps
    )
    return certificate.RecordBound(epsilon=best.epsilon, delta=best.delta, t=best.t)


def _records_in(event: events.Event) -> Iterator[events.SeededRecords | events.UncountedRecords]:
    match event:
        case events.SeededRecords() | events.UncountedRecords():
            yield event
        case events.Composed():
            for part, _ in event.parts:
                yield from _records_in(part)
        case events.Parallel():
            for part in event.parts:
                yield from _records_in(part)


def _without_records(event: events.Event) -> events.Event:
    """The event without its records."""
    match event:
        case events.SeededRecords() | events.UncountedRecords():
            return events.Composed(())
        case events.Composed():
            return events.Composed(tuple((_without_records(part), n) for part, n in event.parts))
        case events.Parallel():
            return events.Parallel(tuple(map(_without_records, event.parts)), event.rows)
    return event


def record_words(records: certificate.RecordGuarantees) -> tuple[str, ...]:
    """The guarantees of the records, in sentences."""
    one, every = records.one_record, records.all_candidates
    noise = _NOISE if one else ""
    several = records.k_units < records.k
    units = _UNITS.format(units=records.k_units) if several else ""
    inside = _INSIDE.format(k=records.k, units=units, noise=noise, gamma=records.gamma)
    alone = (_ALONE.format(**_terms(one), t=one.t),) if one else ()
    together = (
        _TOGETHER.format(candidates=records.candidates, **_terms(every))
        if every
        else _NOTHING.format(candidates=records.candidates)
    )
    return (inside, _COPIED, *alone, together)


def _terms(bound: certificate.RecordBound) -> dict[str, str]:
    return {"epsilon": figure_above(bound.epsilon, 4), "delta": figure_above(bound.delta, 2)}


def _bound(
    event: events.Event | None, delta: Fraction, relation: events.Relation | str
) -> certificate.RecordBound | None:
    """What an event costs at ``delta``; None if nothing bounds it."""
    if event is None:
        return None
    try:
        cost = spend(event, delta, relation)
    except UnsupportedEvent:
        return None
    return certificate.RecordBound(epsilon=cost.epsilon, delta=float(delta))
