"""One fit of records made from seeds: the network from two parts, the records from the third."""

from __future__ import annotations

from collections.abc import Mapping

from cloister.models.deniability.bayes.fit import NetworkDoors, NetworkFit
from cloister.models.deniability.bayes.model import NetworkModel
from cloister.models.deniability.paper.fit import PaperFit
from cloister.models.deniability.paper.plan import DeniabilityPaperParameters
from cloister.models.deniability.plan import (
    PARAMETERS,
    SEEDS,
    STRUCTURE,
    DeniabilityParameters,
    divided_parts,
)
from cloister.models.deniability.pool import DeniableModel, released_pool
from cloister.models.deniability.rows import fill_up, rows_of_records
from cloister.models.deniability.seeding import SeedParameters
from cloister.models.protocol import Progress
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.privacy.queries.seeded_records import Kept, SeededCandidates

_SEED = 20_170_102
"""Public seed of the values that records take inside their levels."""


def fit_deniability(
    private: Door[TableRows], task: Task, plan: Plan[DeniabilityParameters], progress: Progress
) -> DeniableModel:
    """The network from parts of the rows, and the records that pass the test from the others."""
    parts = divided_parts(plan.stages)
    doors = dict(zip(parts.names, private.divide(parts.split, "parts"), strict=True))
    network = _network(doors, task, plan, progress)
    query = candidates_of(network, plan.parameters.seeding)
    records = doors[SEEDS].answer(query, plan.parameters.seeding.test, "records")
    finish, fill = SamplingSource(_SEED).spawn(2)
    rows = rows_of_records(network, records, finish)
    pool = fill_up(network, rows, task.output_rows, fill)
    return DeniableModel(task, network, released_pool(pool), rows.rows)


def _network(
    doors: Mapping[str, Door[TableRows]],
    task: Task,
    plan: Plan[DeniabilityParameters],
    progress: Progress,
) -> NetworkModel:
    own = NetworkDoors(doors.get(STRUCTURE, doors[PARAMETERS]), doors[PARAMETERS])
    parameters = plan.parameters.network
    if isinstance(parameters, DeniabilityPaperParameters):
        return PaperFit(own, task, plan.sequence, parameters).train()
    return NetworkFit(own, task, plan.sequence, parameters, progress).train()


def candidates_of(model: NetworkModel, seeding: SeedParameters) -> SeededCandidates:
    """The query of candidate records of a network."""
    return SeededCandidates(
        model.network,
        Kept(*seeding.kept),
        seeding.gamma,
        seeding.candidates,
        seeding.withheld,
        seeding.least_seeds,
    )
