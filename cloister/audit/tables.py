"""Neighbouring tables that are chosen to hurt, with the spec that their owner would write.

The unit has cells that nobody else has, so that it moves counts that are zero without it, at the
ends of numbers and dates; or breaks what was declared; or has as many rows as a unit may, or more.
The tables are made here by a seed and hold nothing of anybody.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from cloister.arrays import Booleans, Floats, Integers
from cloister.errors import InputError
from cloister.models.protocol import DatabaseModel
from cloister.models.registry import create, over_databases
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.randomness import SamplingSource, noise_source
from cloister.schema.domain import Table
from cloister.schema.relations import Database
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import anchored, load_spec
from cloister.tasks.data.sources import private_database
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

ROW, PERSON, TABLES = "row", "person", "tables"
"""Units: a row of the only table, all rows of a person, a row with all that refer to it."""

UNITS_OF = {False: (ROW, PERSON), True: (TABLES,)}
"""Those of methods of one table, and of methods of several."""

LEAST_ROWS = 160
"""Rows of the first table, unless a method has no plan for so few: a release takes a tenth of a
second."""

CHOOSING_ROWS = 400
"""Rows at which methods that choose what to count do so at epsilon 4: of 160, `relational` counts
every pair, and its choices are attacked by nobody."""

MAX_ROWS = 3
"""Rows of a person, and rows that refer to one row, at most."""

_KEY = {"type": "text", "pattern": "P{00001..99999}"}
"""The column that names persons, or rows that others refer to."""

_Cells = Mapping[str, Any]

_USUAL: _Cells = {"kind": "a", "grade": "mid", "amount": 12, "day": "2004-05-06"}
_RARE: _Cells = {"kind": "d", "grade": "top", "amount": 59, "day": "2009-12-31"}
"""In each column a value of a part that no other row is in, numbers and dates at their ends."""

_INVALID: _Cells = {"kind": "z", "grade": "mid", "amount": 1e6, "day": "0001-01-01"}
"""No value as declared, but one: moved to the ends, or missing."""


@dataclass(frozen=True)
class Neighbouring:
    """Two neighbouring datasets, and the content of their spec; ``frames`` of a table by its name.

    The first lacks the unit, or has an ordinary one of one row in its place: as many rows would not
    move the counts of rows a unit, and show 0.83 of what is claimed of persons, not 0.99.
    """

    spec: Mapping[str, Any]
    frames: tuple[Mapping[str, pd.DataFrame], Mapping[str, pd.DataFrame]]
    ending: str = "csv"

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The specs of both, each beside its files."""
        return self._written(folder / "without", 0), self._written(folder / "with", 1)

    def _written(self, folder: Path, index: int) -> Path:
        return write_tables(self.spec, self.frames[index], self.ending, folder)


def write_tables(
    spec: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], ending: str, folder: Path
) -> Path:
    """Tables as files in a new folder, and the spec whose sources they are; its path."""
    folder.mkdir(parents=True)
    content = dict(spec)
    sources = {}
    for name, frame in frames.items():
        path = folder / f"{name}.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        sources[name] = {"path": str(path)}
    if "tables" in content:
        content["tables"] = {
            name: {**table, "source": sources[name]} for name, table in content["tables"].items()
        }
    else:
        content["source"] = sources[content["name"]]
    (folder / "spec.yaml").write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    return folder / "spec.yaml"


def neighbours(unit: str, relation: Relation, kind: str, rows: int) -> Neighbouring:
    """The tables of a unit under a relation, which differ by one of a kind in `KINDS`."""
    return _MAKERS[unit](relation, rows, *KINDS[unit][kind])


KINDS: Mapping[str, Mapping[str, tuple[_Cells, int]]] = {
    ROW: {"rare": (_RARE, 1), "invalid": (_INVALID, 1)},
    PERSON: {"full": (_RARE, MAX_ROWS), "beyond the bound": (_RARE, MAX_ROWS + 2)},
    TABLES: {"most children": (_RARE, MAX_ROWS), "beyond the bound": (_RARE, MAX_ROWS + 2)},
}
"""Of each unit: the cells of its rows, and how many rows it has."""


def _rows(relation: Relation, rows: int, cells: _Cells, count: int) -> Neighbouring:
    base = _base(rows - 1)
    without = [] if relation is Relation.ADD_REMOVE else [_USUAL] * count
    frames = _added(base, without), _added(base, [cells] * count)
    spec = _spec("audit", ROW, relation, rows) | {"attributes": _attributes()}
    return Neighbouring(spec, tuple({"audit": frame} for frame in frames))  # type: ignore[arg-type]


def _persons(relation: Relation, rows: int, cells: _Cells, count: int) -> Neighbouring:
    names = np.array([f"P{number:05}" for number in range(1, 1 + rows // 2)])
    rng = np.random.default_rng(2)
    base = _base(rows - MAX_ROWS).assign(person=rng.permutation(np.resize(names, rows - MAX_ROWS)))
    one = {"person": "P99999"}
    without = [] if relation is Relation.ADD_REMOVE else [{**_USUAL, **one}]
    frames = _added(base, without), _added(base, [{**cells, **one}] * count)
    spec = _person_spec(relation, rows, len(names) + 1)
    return Neighbouring(spec, tuple({"audit": frame} for frame in frames))  # type: ignore[arg-type]


def _several(relation: Relation, rows: int, cells: _Cells, count: int) -> Neighbouring:
    rng = np.random.default_rng(3)
    parents, children = _base(rows - 1)[["kind", "day"]], _base(rows)[["grade", "amount"]]
    names = np.array([f"P{number:05}" for number in range(1, rows)])
    parents, children = parents.assign(id=names), children.assign(parent=rng.choice(names, rows))
    frames = []
    for unit in (None if relation is Relation.ADD_REMOVE else _USUAL, cells):
        ours = [] if unit is None else [{"kind": unit["kind"], "day": unit["day"], "id": "P99999"}]
        theirs = (
            []
            if unit is None
            else [{"grade": unit["grade"], "amount": unit["amount"], "parent": "P99999"}]
            * (count if unit is cells else 1)
        )
        frames.append({"parents": _added(parents, ours), "children": _added(children, theirs)})
    return Neighbouring(_tables_spec(relation, rows, rows), tuple(frames))  # type: ignore[arg-type]


def drawn_neighbours(path: Path) -> Neighbouring:
    """Tables by a spec of somebody's, whose own rows are not read, and its rarest unit.

    Rows are drawn from a model of an empty table, in which the hard constraints hold.

    Raises:
        InputError: the spec cannot be used.
    """
    declared = load_spec(path.absolute())
    declared_rows, model = model_of_nothing(path)
    drawn = model.sample(min(declared_rows, LEAST_ROWS), SamplingSource(1))
    lead = drawn.tables[drawn.schema.lead]
    usual, *_, rarest = _by_rarity(lead, getattr(declared.privacy.protected, "key", None))
    whole = drawn.tables
    without = {**whole, drawn.schema.lead: lead.take(~rarest)}
    if declared.privacy.relation == "replace_one":
        whole = {**whole, drawn.schema.lead: lead.take(~usual)}
    content = content_of(declared)
    frames = [{n: table.frame() for n, table in tables.items()} for tables in (without, whole)]
    return Neighbouring(content, (frames[0], frames[1]), "parquet")


def content_of(spec: Spec) -> dict[str, Any]:
    """The content of a spec, whose files are named by whole paths."""
    return dict(anchored(spec.to_json(), lambda file: str((spec.folder / file).absolute())))


def model_of_nothing(path: Path, rows: int | None = None) -> tuple[int, DatabaseModel]:
    """The number of rows that a spec declares, or those given, and a model of an empty table.

    Raises:
        InputError: the spec cannot be used.
        PlanError: it has not as many keys.
    """
    request = resolve(ReleaseRequest(spec=path, method="auto", rows=rows))
    task, plan = public_context_of(request).task, plan_of(request)
    nothing = {name: Table.completed(d, {}, 0) for name, d in task.schema.tables.items()}
    with tempfile.TemporaryDirectory() as folder, Journal.open(folder, {"run": "audit"}) as journal:
        empty = Database(task.schema, nothing)
        door = private_database(empty, task, plan.event, journal, noise_source())
        model = over_databases(create(request.method)).train(door, task, plan)
    return request.rows, model


def _by_rarity(table: Table, person: str | None) -> list[Booleans]:
    """The rows of each unit, a mask (n,): units of few rows with usual values first."""
    rarity = _rarity(table)
    owners = np.arange(table.rows) if person is None else table.codes[person]
    units, rows = np.unique(owners, return_inverse=True)
    order = np.argsort(np.bincount(rows, weights=rarity))
    return [owners == units[unit] for unit in order]


def _rarity(table: Table) -> Floats:
    """How rare the values of each row (n,) are, in nats."""
    rarity = np.zeros(table.rows)
    for name in table.domain.modelled:
        _, codes, counts = np.unique(table.codes[name], return_inverse=True, return_counts=True)
        rarity -= np.log(counts[codes] / table.rows)
    return rarity


_MAKERS: Mapping[str, Callable[[Relation, int, _Cells, int], Neighbouring]] = {
    ROW: _rows,
    PERSON: _persons,
    TABLES: _several,
}


def _base(rows: int) -> pd.DataFrame:
    """Rows of the values that are not rare."""
    rng = np.random.default_rng(1)
    days = np.datetime64("2001-01-01") + rng.integers(0, 8 * 365, rows)
    return pd.DataFrame(
        {
            "kind": rng.choice(["a", "b", "c"], rows),
            "grade": rng.choice(["low", "mid"], rows),
            "amount": rng.integers(0, 50, rows).astype(object),
            "day": days.astype(str),
        }
    )


@dataclass(frozen=True)
class Population:
    """Units that are independent draws of one distribution, and the content of their spec."""

    spec: Mapping[str, Any]
    frames: Mapping[str, pd.DataFrame]

    def write(self, folder: Path) -> Path:
        """The spec beside the files of the rows."""
        return write_tables(self.spec, self.frames, "parquet", folder)

    def declaring(self, declared: int, units: int) -> Population:
        """The same, whose spec declares the size of ``declared`` of its ``units``."""
        sizes = {name: round(len(f) * declared / units) for name, f in self.frames.items()}
        content = dict(self.spec)
        tables, privacy = content.get("tables", {}), dict(content["privacy"])
        lead = next(name for name in sizes if "rows" not in tables.get(name, {}))
        privacy["rows"] = {"public": sizes[lead]}
        if "key" in privacy["unit"]:
            privacy["unit"] = {**privacy["unit"], "persons": {"public": declared}}
        if tables:
            content["tables"] = {
                name: table | ({"rows": {"public": sizes[name]}} if "rows" in table else {})
                for name, table in tables.items()
            }
        return Population(content | {"privacy": privacy}, self.frames)


def population(unit: str, declared: int, units: int) -> Population:
    """So many units of the tables here, with all columns related, of which a number is declared."""
    rng, relation = np.random.default_rng(4), Relation.ADD_REMOVE
    common, names = rng.beta(1, 2, units), np.array([f"P{n:05}" for n in range(1, units + 1)])
    if unit == ROW:
        spec = _spec("audit", ROW, relation, declared) | {"attributes": _attributes()}
        return Population(spec, {"audit": _related(common, rng)})
    if unit == PERSON:
        owners = np.repeat(np.arange(units), rng.integers(1, MAX_ROWS + 1, units))
        rows = _related(common[owners], rng).assign(person=names[owners])
        spec = _person_spec(relation, declared, declared)
        return Population(spec, {"audit": rows}).declaring(declared, units)
    owners = np.repeat(np.arange(units), rng.integers(0, MAX_ROWS + 1, units))
    parents = _related(common, rng)[["kind", "day"]].assign(id=names)
    children = _related(common[owners], rng)[["grade", "amount"]].assign(parent=names[owners])
    spec = _tables_spec(relation, declared, declared)
    made = Population(spec, {"parents": parents, "children": children})
    return made.declaring(declared, units)


def _related(common: Floats, rng: np.random.Generator) -> pd.DataFrame:
    """Rows (n,) whose values go with shares from 0 to 1."""
    kinds, grades, amounts, days = (
        np.clip(common + rng.normal(0, 0.15, len(common)), 0, 1) for _ in range(4)
    )
    return pd.DataFrame(
        {
            "kind": np.array([*"abcd"])[(3.99 * kinds).astype(int)],
            "grade": np.array(["low", "mid", "top"])[(2.99 * grades).astype(int)],
            "amount": (59 * amounts).astype(int),
            "day": (np.datetime64("2000-01-01") + (3_652 * days).astype(int)).astype(str),
        }
    )


def drawn_population(path: Path, declared: int, units: int) -> Population:
    """The same by a spec of somebody's, whose own rows are not read.

    Raises:
        InputError: the spec cannot be used, or rows of several tables are units.
        PlanError: it has not as many keys.
    """
    spec = load_spec(path.absolute())
    rows, model = model_of_nothing(path, units * getattr(spec.privacy.protected, "max_rows", 1))
    drawn = model.sample(rows, SamplingSource(1))
    if drawn.schema.any_row:
        raise InputError(
            f"{path}: a row of any table is a unit there, and attacks are on rows of one table "
            "with those that refer to them; name that table as privacy.unit"
        )
    frames = {name: table.frame() for name, table in drawn.tables.items()}
    lead, key = frames[drawn.schema.lead], getattr(spec.privacy.protected, "key", None)
    return Population(content_of(spec), frames).declaring(
        declared, lead[key].nunique() if key else len(lead)
    )


def rarest(table: Table, count: int) -> Integers:
    """The numbers of the rows with the rarest values, in order."""
    return np.sort(np.argsort(-_rarity(table), kind="stable")[:count])


def _added(base: pd.DataFrame, rows: Sequence[_Cells]) -> pd.DataFrame:
    return pd.concat([base, pd.DataFrame(rows, columns=base.columns)]) if rows else base


def _spec(name: str, unit: Any, relation: Relation, rows: int) -> dict[str, Any]:
    return {
        "name": name,
        "privacy": {
            "unit": unit,
            "relation": str(relation),
            "rows": {"public": rows},
            "budget": {"epsilon": 1000, "delta": "1e-4", "per": "ever"},
        },
        "validation": {"on_invalid": "clip"},
        "release": {"method": "auto", "epsilon": 1, "delta": "1e-6"},
    }


def _attributes() -> dict[str, Any]:
    listed: dict[str, dict[str, Any]] = {
        "kind": {"type": "categorical", "values": [*"abcd"], "nullable": True},
        "grade": {"type": "ordinal", "values": ["low", "mid", "top"]},
        "amount": {"type": "integer", "min": 0, "max": 59, "bins": 6},
        "day": {"type": "date", "min": "2000-01-01", "max": "2009-12-31", "bins": 5},
    }
    return {name: {**keys, "provenance": "made for the audit"} for name, keys in listed.items()}


def _person_spec(relation: Relation, rows: int, persons: int) -> dict[str, Any]:
    unit = {"key": "person", "max_rows": MAX_ROWS, "persons": {"public": persons}}
    attributes = {"person": {**_KEY}, **_attributes()}
    return _spec("audit", unit, relation, rows) | {"attributes": attributes}


def _tables_spec(relation: Relation, rows: int, children: int) -> dict[str, Any]:
    attributes = _attributes()
    tables = {
        "parents": {
            "key": "id",
            "attributes": {"id": {**_KEY}, "kind": attributes["kind"], "day": attributes["day"]},
            "validation": {"on_invalid": "clip"},
        },
        "children": {
            "rows": {"public": children},
            "references": {"parent": {"table": "parents", "max_rows": MAX_ROWS}},
            "attributes": {
                "parent": {**_KEY},
                "grade": attributes["grade"],
                "amount": attributes["amount"],
            },
            "validation": {"on_invalid": "clip"},
        },
    }
    spec = _spec("audit", {"table": "parents"}, relation, rows) | {"tables": tables}
    del spec["validation"]
    return spec
