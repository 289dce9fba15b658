"""The fit of the paper: rows of both tables, then rounds of selection, measurement and learning.

Source: arXiv 2405.18670, algorithms 1, 4 and 7.
"""

from __future__ import annotations

import numpy as np

from cloister.models.protocol import AnySynthesizer, DatabaseDoor
from cloister.models.relational.candidates import candidates
from cloister.models.relational.link import Link, Measured
from cloister.models.relational.paper.drawn import DrawnLinks
from cloister.models.relational.paper.model import PaperModel
from cloister.models.relational.paper.plan import RelationalPaperParameters, link_of
from cloister.models.relational.rows import tasks_of_rows, train_rows
from cloister.models.relational.schedule import MEASURE, SELECT
from cloister.models.several_tables import LabelledDoor
from cloister.models.task import DatabaseTask, Plan
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.distances import Candidate, CandidateScores
from cloister.schema.relations import joined_table

_SEED = 20_240_518
"""Public seed of the rows on which the matrix is learned during the fit."""


def train_paper(
    base: AnySynthesizer,
    private: DatabaseDoor,
    task: DatabaseTask,
    plan: Plan[RelationalPaperParameters],
) -> PaperModel:
    """The models of both tables, then all rounds."""
    rows, parameters = tasks_of_rows(task), plan.parameters
    models = train_rows(base, private, rows, parameters.plans)
    key = link_of(task)
    drawn = DrawnLinks.of(task, models, task.output_rows, SamplingSource(_SEED))
    empty = Link(key, np.ones(1), drawn.parts())
    model = PaperModel(
        base.name, task, rows, models, empty, parameters.workloads, parameters.slicing
    )
    matrix = model.relationship(drawn, empty)
    door = LabelledDoor(private.table(joined_table(key)), joined_table(key))
    left, link = list(candidates(task.schema, key, parameters.ways)), empty
    for _ in range(parameters.rounds):
        expected = matrix.answers(left)
        choices = [
            Candidate(tuple(link.parts[name] for name in own.names), table, 0.0)
            for own, table in zip(left, expected, strict=True)
        ]
        for _ in range(min(parameters.workloads, len(left))):
            at = door.answer(CandidateScores(tuple(choices)), parameters.selection, SELECT)
            workload, chosen = left.pop(at), choices.pop(at)
            counts = door.answer(PartitionCounts(chosen.partitions), parameters.tables, MEASURE)
            link = link.with_measured([Measured(workload, counts)])
        matrix.learn(link)
    return PaperModel(base.name, task, rows, models, link, parameters.workloads, parameters.slicing)
