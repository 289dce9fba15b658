"""The Bayesian network and plausible deniability, on the door.

Source: Bindschaedler, Shokri, Gunter, "Plausible Deniability for Privacy-Preserving Data Synthesis"
    (VLDB 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

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
from cloister.privacy.certificate.certificate import OwnGuarantees
from cloister.privacy.events import Event, Relation
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.attributes import Declared
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY

if TYPE_CHECKING:
    from cloister.models.deniability.network import NetworkModel
    from cloister.models.deniability.pool import DeniableModel


class BayesSynthesizer(Synthesizer[NetworkParameters, "NetworkModel"]):
    """The network alone: every attribute is drawn anew, so that no row is a seed."""

    supports_conditionals = True
    weighs_soft = True
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
        self, event: Event, delta: Fraction, relation: Relation | str
    ) -> OwnGuarantees:
        """Those of the records."""
        from cloister.models.deniability.wording import own_guarantees

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
