"""A fitted model of several tables: released statistics only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.models.discretization.bins import Bins
from cloister.models.protocol import AnySynthesizer, Arrays, Model
from cloister.models.relational.candidates import Workload
from cloister.models.relational.constraints.key_rules import rules_across
from cloister.models.relational.constraints.pair_keys import distinct_pairs
from cloister.models.relational.drawing import Drawing
from cloister.models.relational.link import Link, Measured
from cloister.models.relational.parts import numbers_of, parts_of
from cloister.models.relational.rows import (
    counted_tables,
    post_processing_of_rows,
    restore_rows,
    rows_state,
)
from cloister.models.several_tables import part_of_arrays
from cloister.models.task import DatabaseTask, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.relations import Database, ForeignKey, joined_domain, joined_table

_ROWS = "the rows of each table are drawn by a model of that table alone"
_COUNTED = (
    "shares of values are of the noisy number of rows, drawn to the declared one as far as noise "
    "explains the difference"
)
_NUMBERED = "keys are numbered afresh, and name no row of the data"
_DEGREES = (
    "noisy counts of how many rows refer to one are made a distribution, by which each synthetic "
    "row gets its number of rows that refer to it"
)
_MATCHED = (
    "noisy joint tables across a foreign key are fitted by projected gradient over pairs of kinds "
    "of rows, rounded without bias, and rows of each kind are matched at random; each row refers "
    "to exactly one"
)
_MOVED = "a row for which no place is left takes a free one, the likeliest by those tables"
_KEPT = (
    "for constraints across a foreign key rows exchange the rows that they refer to; what no "
    "exchange helps moves to a free place, takes the attributes of another synthetic row, or is "
    "left out"
)

_DROPPED = (
    "of a table to itself, a reference that violates a constraint across it is dropped, and the "
    "row keeps its attributes"
)
_ROOTED = "no row is above itself: of such circles rows exchange or lose what they refer to"


@dataclass(frozen=True)
class RelationalModel:
    """The models of the rows of tables, and the relationships between them.

    ``base`` is the method of rows, ``rows`` are the tasks of its models, of all tables that have
    attributes; a link has the name of its joined table.
    """

    base: str
    task: DatabaseTask
    rows: Mapping[str, Task]
    models: Mapping[str, Model]
    links: Mapping[str, Link]

    @property
    def capacity(self) -> int | None:
        """The least that the model of rows of the first table may give."""
        return self.models[self.task.schema.lead].capacity

    @property
    def histograms(self) -> Mapping[str, Mapping[str, Bins]]:
        """The released histograms of the rows of each table."""
        return {name: model.histograms for name, model in self.models.items()}

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        linked = (_DEGREES, _MATCHED, _MOVED) if self.links else ()
        counted = tuple(f"{name}: {_COUNTED}" for name in counted_tables(self.task))
        rows = (_ROWS, *counted, *post_processing_of_rows(self.models))
        return (*rows, *linked, *self._repaired(), _NUMBERED)

    def _repaired(self) -> Iterator[str]:
        """What is done to references so that constraints and hierarchies hold."""
        keys, ruled = self.task.schema.keys, rules_across(self.task)
        itself = [key for key in keys if key.to_itself]
        if len(ruled) > sum(joined_table(key) in ruled for key in itself):
            yield _KEPT
        if itself:
            yield _ROOTED
        if any(joined_table(key) in ruled for key in itself):
            yield _DROPPED

    def sample(self, rows: int, rng: SamplingSource) -> Database:
        """Tables with so many ``rows`` in that of the units, in which each reference names a row.

        SampleError if they cannot be drawn.
        """
        schema = self.task.schema
        pairs, rules = distinct_pairs(self.task), rules_across(self.task)
        drawing = Drawing(schema, rng.generator, pairs, rules=rules)
        for name in schema.tables:
            number = self._number(name, rows, drawing)
            model = self.models.get(name) if number else None
            drawing.add(name, model.sample(number, rng) if model else None, number)
            for key in schema.parents_of(name):
                drawing.relate(self.links[joined_table(key)])
        return drawing.database()

    def _number(self, name: str, rows: int, drawing: Drawing) -> int:
        """How many rows of a table: of the units as wanted, else as the first parents have."""
        scale = rows / self.task.data_rows
        declared = max(int(self.task.tables[name].data_rows * scale), 1)
        required = [key for key in self.task.schema.parents_of(name) if not key.optional]
        if name == self.task.schema.lead:
            return rows
        if not required:
            return declared
        link, parents = self.links[joined_table(required[0])], drawing.numbers[required[0].parent]
        places = drawing.places(name)
        assert places is not None
        # where rules left no parents, there is no row to refer to one
        return min(max(link.drawn_children(parents), 1), declared, places)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays; :func:`restore_relational` reads them."""
        models, arrays = rows_state(self.models)
        for name, link in self.links.items():
            arrays |= {f"links.{name}/{key}": array for key, array in link_arrays(link).items()}
        links = {name: link_meta(link) for name, link in self.links.items()}
        numbers = {name: own.data_rows for name, own in self.rows.items()}
        meta = {"base": self.base, "models": models, "rows": numbers, "links": links}
        return meta, arrays


def link_meta(link: Link) -> dict[str, Any]:
    """What a link is made of, as JSON."""
    measured = [
        [list(table.workload.parent), list(table.workload.child)] for table in link.measured
    ]
    return {"parts": list(link.parts), "measured": measured}


def link_arrays(link: Link) -> dict[str, NDArray[np.generic]]:
    """The numbers of a link."""
    found: dict[str, NDArray[np.generic]] = {"degrees": link.degrees}
    found |= {f"parts{at}": numbers_of(parts) for at, parts in enumerate(link.parts.values())}
    found |= {f"counts{at}": table.counts for at, table in enumerate(link.measured)}
    return found


def restore_relational(
    create: Callable[[str], AnySynthesizer],
    task: DatabaseTask,
    rows: Mapping[str, Task],
    meta: Mapping[str, Any],
    arrays: Arrays,
) -> RelationalModel:
    """The model whose :meth:`RelationalModel.state` is given; ``create`` makes a method of rows."""
    base = create(meta["base"])
    # models that were saved before rows were counted have the declared numbers
    counted = meta.get("rows", {})
    rows = {
        name: replace(own, data_rows=counted.get(name, own.data_rows)) for name, own in rows.items()
    }
    models = restore_rows(base, rows, meta["models"], arrays)
    links = {
        name: restored_link(task, key, meta["links"][name], part_of_arrays(arrays, f"links.{name}"))
        for name, key in ((joined_table(key), key) for key in task.schema.keys)
    }
    return RelationalModel(base.name, task, rows, models, links)


def restored_link(
    task: DatabaseTask, key: ForeignKey, meta: Mapping[str, Any], own: Arrays
) -> Link:
    """The link of :func:`link_meta` and :func:`link_arrays`."""
    columns = {column.name: column for side in joined_domain(task.schema, key) for column in side}
    parts = {
        name: parts_of(columns[name], own[f"parts{at}"]) for at, name in enumerate(meta["parts"])
    }
    measured = tuple(
        Measured(Workload(tuple(parent), tuple(child)), own[f"counts{at}"])
        for at, (parent, child) in enumerate(meta["measured"])
    )
    return Link(key, own["degrees"], parts, measured)
