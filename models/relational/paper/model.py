"""The fit and the model of the paper: rows of two tables, and the matrix between them.

Rows of both tables come first, then rounds of selection, measurement and learning.

The model holds the measurements, round by round. A release draws rows other than those of the fit;
their matrix learns from the same answers in the same rounds, which is post-processing.

Source: arXiv 2405.18670, algorithms 1, 4 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Integers
from cloister.models.core.bins import Histogram, parts_by
from cloister.models.protocol import (
    AnySynthesizer,
    Arrays,
    CountedRows,
    DatabaseDoor,
    Model,
    counted_rows,
    part_of_arrays,
)
from cloister.models.relational.paper.joint_tables import Link, Measured, Side, candidates
from cloister.models.relational.paper.plan import (
    MEASURE,
    SELECT,
    RelationalPaperParameters,
    link_of,
    sides_of,
)
from cloister.models.relational.paper.relationship import Relationship, Slicing
from cloister.models.relational.paper.rows import (
    post_processing_of_rows,
    restore_rows,
    rows_state,
    tasks_of_rows,
    train_rows,
)
from cloister.models.task import DatabaseTask, Plan, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.distances import Candidate, CandidateScores
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema.domain import Table
from cloister.schema.partition import Partition
from cloister.schema.relations import (
    Database,
    ForeignKey,
    joined_domain,
    joined_table,
    of_parent,
    of_row,
)

_ROWS = "the rows of both tables are drawn by a model of each alone"

_MATRIX = (
    "noisy joint tables across the relationship are fitted by projected gradient over all pairs of "
    "rows, round by round; links are sampled without bias from each slice; degrees are not bounded"
)

_NUMBERED = "keys are numbered afresh, and name no row of the data"

_SEED = 20_240_518
"""Public seed of the rows on which the matrix is learned during the fit."""


@dataclass(frozen=True)
class DrawnLinks:
    """Drawn rows of both tables of a relationship: ``scale`` times the declared numbers."""

    task: DatabaseTask
    key: ForeignKey
    rows: Mapping[str, Table]
    scale: float
    rng: np.random.Generator

    @classmethod
    def of(
        cls, task: DatabaseTask, models: Mapping[str, Model], rows: int, rng: SamplingSource
    ) -> DrawnLinks:
        """Rows of the units' table, and of the other as many per unit as declared."""
        scale, drawn = rows / task.data_rows, {}
        for name, model in models.items():
            number = max(round(task.tables[name].data_rows * scale), 1)
            drawn[name] = model.sample(number, rng)
        return cls(task, link_of(task), drawn, scale, rng.generator)

    @property
    def one_parent(self) -> bool:
        """Whether rows of a table refer, each to one parent, and not a link to two."""
        return self.task.schema.parents_of(self.key.table)[0] == self.key

    @property
    def sides(self) -> tuple[Side, Side]:
        """The parents; and the rows that refer, or those of the first parent of links."""
        referring, referred = sides_of(self.task, self.key)
        parents, rows = self.rows[referred], self.rows[referring]
        everyone = np.arange(rows.rows)
        first = self.task.schema.parents_of(self.key.table)[0]
        codes = (
            of_row(referring, rows, everyone)
            if self.one_parent
            else of_parent(first, rows, everyone)
        )
        above = of_parent(self.key, parents, np.arange(parents.rows))
        return Side(above, parents.rows), Side(codes, rows.rows)

    def database(self, rows: Integers, parents: Integers) -> Database:
        """The tables with links between rows and parents."""
        first, *later = self.task.schema.parents_of(self.key.table)
        owners, tables = {self.key: parents}, dict(self.rows)
        if later:
            owners[first] = rows
        linked = dict(self.rows[self.key.table].codes) if not later else {}
        for key, rows_above in owners.items():
            linked[key.column] = self.rows[key.parent].codes[key.key][rows_above]
        domain = self.task.schema.tables[self.key.table]
        for column in domain:
            linked.setdefault(column.name, np.arange(len(rows)))
        tables[self.key.table] = Table(domain, {name: linked[name] for name in domain.names})
        return Database(self.task.schema, {name: tables[name] for name in self.task.schema.tables})

    def parts(self) -> dict[str, Partition]:
        """At most eight parts of each attribute, of equal mass among these rows."""
        parents, children = self.sides
        codes = {**parents.codes, **children.codes}
        return {
            column.name: parts_by(column, codes[column.name])
            for side in joined_domain(self.task.schema, self.key)
            for column in side
        }


@dataclass(frozen=True)
class PaperModel:
    """The models of both tables, and the joint tables measured across the relationship, in order.

    Each round measured ``workloads`` of them.
    """

    base: str
    task: DatabaseTask
    rows: Mapping[str, Task]
    models: Mapping[str, Model]
    link: Link
    workloads: int
    slicing: Slicing

    @property
    def capacity(self) -> int | None:
        """The least that the model of rows of the first table may give."""
        lead = self.models.get(self.task.schema.lead)
        return lead.capacity if lead else None

    @property
    def samplers(self) -> Mapping[str, Never]:
        """None: links depend on the rows of both tables."""
        return {}

    def counted_rows(self, table: str, task: Task) -> CountedRows | None:
        """What was counted of the rows of a table; None if it has references alone."""
        return counted_rows(self.models[table], task) if table in self.models else None

    @property
    def histograms(self) -> Mapping[str, Mapping[str, Histogram]]:
        """The released histograms of the rows of each table."""
        return {name: model.histograms for name, model in self.models.items()}

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        return (_ROWS, *post_processing_of_rows(self.models), _MATRIX, _NUMBERED)

    def sample(self, rows: int, rng: SamplingSource) -> Database:
        """Tables with so many ``rows`` in that of the units."""
        drawn = DrawnLinks.of(self.task, self.models, rows, rng)
        matrix = self.relationship(drawn, self.link)
        tables: tuple[Measured, ...] = self.link.measured
        measured: list[Measured] = []
        for start in range(0, len(tables), self.workloads):
            measured += tables[start : start + self.workloads]
            matrix.learn(replace(self.link, measured=tuple(measured)))
        return drawn.database(*matrix.links())

    def relationship(self, drawn: DrawnLinks, link: Link) -> Relationship:
        """The matrix of drawn rows, with random links."""
        parents, children = drawn.sides
        declared = self.task.tables[self.link.key.table].data_rows
        number = max(round(declared * drawn.scale), 1)
        one = drawn.one_parent
        return Relationship(
            link,
            parents,
            children,
            number=children.rows if one else number,
            one_parent=one,
            slicing=self.slicing,
            rng=drawn.rng,
        )

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays; :func:`restore_paper` reads them."""
        models, arrays = rows_state(self.models)
        meta = {"base": self.base, "models": models, "workloads": self.workloads}
        meta |= {"slicing": asdict(self.slicing), "link": self.link.meta()}
        of_link = {f"link/{name}": array for name, array in self.link.arrays().items()}
        return meta, of_link | arrays


def restore_paper(
    create: Callable[[str], AnySynthesizer],
    task: DatabaseTask,
    meta: Mapping[str, Any],
    arrays: Arrays,
) -> PaperModel:
    """The model whose :meth:`PaperModel.state` is given; ``create`` makes a method of rows."""
    base, rows = create(meta["base"]), tasks_of_rows(task)
    models = restore_rows(base, rows, meta["models"], arrays)
    link = Link.restored(task.schema, link_of(task), meta["link"], part_of_arrays(arrays, "link"))
    slicing = Slicing(**meta["slicing"])
    return PaperModel(base.name, task, rows, models, link, meta["workloads"], slicing)


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
    empty = Link(key, drawn.parts())
    model = PaperModel(
        base.name, task, rows, models, empty, parameters.workloads, parameters.slicing
    )
    matrix = model.relationship(drawn, empty)
    door = LabelledDoor(private.table(joined_table(key)), joined_table(key))
    left, link = list(candidates(task.schema, key, parameters.ways)), empty
    for _ in range(parameters.rounds):
        expected = matrix.answers(left)
        choices = [
            Candidate(tuple(link.parts[name] for name in candidate.names), table, 0.0)
            for candidate, table in zip(left, expected, strict=True)
        ]
        for _ in range(min(parameters.workloads, len(left))):
            index = door.answer(CandidateScores(tuple(choices)), parameters.selection, SELECT)
            workload, chosen = left.pop(index), choices.pop(index)
            counts = door.answer(PartitionCounts(chosen.partitions), parameters.tables, MEASURE)
            link = link.with_measured([Measured(workload, counts.astype(np.float64))])
        matrix.learn(link)
    return PaperModel(base.name, task, rows, models, link, parameters.workloads, parameters.slicing)
