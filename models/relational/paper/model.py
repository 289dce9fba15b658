"""The model of the paper: of the rows of two tables, and of the matrix between them.

The model holds what was measured, round by round. Other rows than those of the fit are drawn from
it for a release; their matrix learns from the same answers in the same rounds, which is
post-processing.

Source: arXiv 2405.18670, algorithms 1, 4 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.models.discretization.bins import Bins
from cloister.models.protocol import AnySynthesizer, Arrays, Model
from cloister.models.relational.link import Link, Measured
from cloister.models.relational.model import link_arrays, link_meta, restored_link
from cloister.models.relational.paper.drawn import DrawnLinks
from cloister.models.relational.paper.plan import link_of
from cloister.models.relational.paper.relationship import Relationship, Slicing
from cloister.models.relational.rows import (
    post_processing_of_rows,
    restore_rows,
    rows_state,
    tasks_of_rows,
)
from cloister.models.several_tables import part_of_arrays
from cloister.models.task import DatabaseTask, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.relations import Database

_ROWS = "the rows of both tables are drawn by a model of each alone"
_MATRIX = (
    "noisy joint tables across the relationship are fitted by projected gradient over all pairs of "
    "rows, round by round; links are sampled without bias from each slice; degrees are not bounded"
)
_NUMBERED = "keys are numbered afresh, and name no row of the data"


@dataclass(frozen=True)
class PaperModel:
    """The models of both tables, and what was measured across the relationship, in order.

    ``workloads`` joint tables were measured a round.
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
    def histograms(self) -> Mapping[str, Mapping[str, Bins]]:
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
        for at in range(0, len(tables), self.workloads):
            measured += tables[at : at + self.workloads]
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
            rng=drawn.drawing.rng,
        )

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays; :func:`restore_paper` reads them."""
        models, arrays = rows_state(self.models)
        meta = {"base": self.base, "models": models, "workloads": self.workloads}
        meta |= {"slicing": asdict(self.slicing), "link": link_meta(self.link)}
        of_link = {f"link/{name}": array for name, array in link_arrays(self.link).items()}
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
    link = restored_link(task, link_of(task), meta["link"], part_of_arrays(arrays, "link"))
    slicing = Slicing(**meta["slicing"])
    return PaperModel(base.name, task, rows, models, link, meta["workloads"], slicing)
