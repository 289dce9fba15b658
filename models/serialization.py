"""Parts that models share, as JSON and arrays and back: bins, rules, weights of constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from cloister.constraints.supports import Coupling, Support
from cloister.models.discretization.bins import Bins
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.sequential.row_by_row import Algorithm3, Penalty
from cloister.models.sampling.supports.support_builder import CompiledConstraints
from cloister.models.soft_constraints.reweighting import Reweighting
from cloister.models.task import Task
from cloister.schema.domain import Cells, Table

_Meta = dict[str, Any]
_Stored = dict[str, NDArray[Any]]


def state_of_bins(bins: Mapping[str, Bins], sequence: Sequence[str]) -> _Stored:
    """The arrays of the bins of a sequence of attributes."""
    arrays: _Stored = {}
    for at, name in enumerate(sequence):
        own = bins[name]
        arrays |= {
            f"cells.{at}": own.cells.starts,
            f"groups.{at}": own.of_cell,
            f"histogram.{at}": own.shares,
        }
    return arrays


def restore_bins(task: Task, sequence: Sequence[str], arrays: Arrays) -> dict[str, Bins]:
    """The bins whose :func:`state_of_bins` is given."""
    return {
        name: Bins(
            Cells(task.domain[name], arrays[f"cells.{at}"]),
            arrays[f"groups.{at}"],
            arrays[f"histogram.{at}"],
        )
        for at, name in enumerate(sequence)
    }


def state_of_rules(rules: CompiledConstraints) -> tuple[_Meta, _Stored]:
    """The rules as JSON and arrays."""
    arrays: _Stored = {}
    for at, support in enumerate(rules.supports):
        arrays[f"support.{at}"] = support.levels
        arrays |= {
            f"box.{at}.{support.attributes.index(name)}": box for name, box in support.boxes.items()
        }
    meta = {
        "supports": list(map(_described, rules.supports)),
        "row_rules": [rule.name for rule in rules.row_rules],
        "pair_rules": [rule.name for rule in rules.pair_rules],
    }
    return meta, arrays


def _described(support: Support) -> _Meta:
    return {
        "attributes": list(support.attributes),
        "boxes": [support.attributes.index(name) for name in support.boxes],
        "couplings": [
            [coupling.first, coupling.second, coupling.sign] for coupling in support.couplings
        ],
    }


def restore_rules(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> CompiledConstraints:
    """The rules whose :func:`state_of_rules` is given."""
    named = {constraint.name: constraint for constraint in task.constraints}
    supports = tuple(_support(at, about, arrays) for at, about in enumerate(meta["supports"]))
    row_rules = tuple(named[name] for name in meta["row_rules"])
    return CompiledConstraints(
        supports, row_rules, tuple(named[name] for name in meta["pair_rules"])
    )


def _support(at: int, about: Mapping[str, Any], arrays: Arrays) -> Support:
    attributes = tuple(about["attributes"])
    boxes = {attributes[column]: arrays[f"box.{at}.{column}"] for column in about["boxes"]}
    couplings = tuple(Coupling(first, second, sign) for first, second, sign in about["couplings"])
    return Support(attributes, arrays[f"support.{at}"], boxes, couplings)


def state_of_reweighting(reweighting: Reweighting | None) -> tuple[_Meta, _Stored]:
    """The weights as JSON and arrays; nothing if there are none."""
    if reweighting is None:
        return {"weights": None}, {}
    codes = reweighting.reference.codes
    arrays = {
        f"reference.{at}": codes[name] for at, name in enumerate(reweighting.reference.domain.names)
    }
    return {"weights": dict(reweighting.weights), "measure": reweighting.measure}, dict(arrays)


def restore_reweighting(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> Reweighting | None:
    """The weights whose :func:`state_of_reweighting` is given."""
    if meta["weights"] is None:
        return None
    codes = {name: arrays[f"reference.{at}"] for at, name in enumerate(task.domain.names)}
    named = {constraint.name: constraint for constraint in task.soft}
    rules = tuple((named[name], weight) for name, weight in meta["weights"].items())
    return Reweighting(rules, Table(task.domain, codes), meta["measure"])


def state_of_algorithm(algorithm: Algorithm3) -> tuple[_Meta, _Stored]:
    """The way in which rows are drawn one after the other as JSON; nothing if they are not."""
    if not algorithm.penalties:
        return {}, {}
    costs = [[own.constraint.name, own.weight, own.per] for own in algorithm.penalties]
    return {
        "penalties": costs,
        "resampled": algorithm.resampled,
        "tries": algorithm.tries,
    }, {}


def restore_algorithm(task: Task, meta: Mapping[str, Any]) -> Algorithm3:
    """The way whose :func:`state_of_algorithm` is given."""
    if "penalties" not in meta:
        return Algorithm3()
    named = {constraint.name: constraint for constraint in task.constraints}
    penalties = tuple(Penalty(named[name], weight, per) for name, weight, per in meta["penalties"])
    return Algorithm3(penalties, meta["resampled"], meta["tries"])


def merge_states(*parts: tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]) -> ModelState:
    """Several states as one."""
    meta: _Meta = {}
    arrays: _Stored = {}
    for part_meta, part_arrays in parts:
        meta |= part_meta
        arrays |= part_arrays
    return meta, arrays
