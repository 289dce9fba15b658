"""Drawn rows of the two tables that the paper relates, before and after they are linked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Integers
from cloister.models.protocol import Model
from cloister.models.relational.constraints.pair_keys import distinct_pairs
from cloister.models.relational.drawing import Drawing
from cloister.models.relational.link import Side
from cloister.models.relational.paper.plan import link_of, sides_of
from cloister.models.relational.parts import Parts, parts_across
from cloister.models.task import DatabaseTask
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.relations import Database, ForeignKey, joined_table, of_parent, of_row


@dataclass(frozen=True)
class DrawnLinks:
    """Drawn rows of both tables of a relationship, ``scale`` times as many as declared."""

    task: DatabaseTask
    key: ForeignKey
    drawing: Drawing
    scale: float

    @classmethod
    def of(
        cls, task: DatabaseTask, models: Mapping[str, Model], rows: int, rng: SamplingSource
    ) -> DrawnLinks:
        """So many rows of the units' table, and as many of the other for each as declared."""
        drawing = Drawing(task.schema, rng.generator, distinct_pairs(task))
        scale = rows / task.data_rows
        for name, model in models.items():
            number = max(round(task.tables[name].data_rows * scale), 1)
            drawing.add(name, model.sample(number, rng), number)
        return cls(task, link_of(task), drawing, scale)

    @property
    def one_parent(self) -> bool:
        """Whether rows of a table refer, each to one parent, and not a link to two."""
        return self.task.schema.parents_of(self.key.table)[0] == self.key

    @property
    def sides(self) -> tuple[Side, Side]:
        """The parents; and the rows that refer, or those of the first parent of links."""
        one, other = sides_of(self.task, self.key)
        parents, rows = self.drawing.rows[other], self.drawing.rows[one]
        everyone = np.arange(rows.rows)
        first = self.task.schema.parents_of(self.key.table)[0]
        own = of_row(one, rows, everyone) if self.one_parent else of_parent(first, rows, everyone)
        above = of_parent(self.key, parents, np.arange(parents.rows))
        return Side(above, parents.rows), Side(own, rows.rows)

    def database(self, rows: Integers, parents: Integers) -> Database:
        """The tables with links between rows and parents."""
        first, *later = self.task.schema.parents_of(self.key.table)
        if later:
            self.drawing.add(self.key.table, None, len(rows))
            self.drawing.owners[joined_table(first)] = rows
        self.drawing.owners[joined_table(self.key)] = parents
        return self.drawing.database()

    def parts(self) -> dict[str, Parts]:
        """At most eight parts of each attribute, of equal mass among these rows."""
        parents, children = self.sides
        codes = {**parents.codes, **children.codes}
        return parts_across(self.task.schema, self.key, codes)
