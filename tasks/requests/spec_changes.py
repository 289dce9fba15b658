"""What to declare more coarsely in a spec, or to leave out, and how much that would gain; public.

A change is tried: the release is planned anew, and the errors of both plans are forecast on the
same marginals, those of the columns that stay. Columns that a rule or a target names stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cloister.errors import PlanError
from cloister.evaluation.marginals import BINS, marginal_cells
from cloister.models import protocol, registry
from cloister.models.task import AnyPlan, Budget, Task
from cloister.schema import codelists, domain, partition
from cloister.schema.columns import Column, Grid, Listed
from cloister.tasks.requests.error_forecast import cells_by_column, forecast_errors, pairs_counted

_MATERIAL = 0.05
"""Least part of an error that a coarser column takes away, to be named: as a tenth more epsilon."""

_WORTH_A_COLUMN = 0.1
"""The same of columns that are left out, since a release then lacks them, ..."""

_OF_SHARE = 0.75
"""... and as a part of the share of the columns that they are: of like columns it would be half."""

_LEFT_OUT = (0.0, 0.1, 0.25, 0.5)
"""Shares of the columns that are tried to be left out, one column at least."""


@dataclass(frozen=True)
class SpecChange:
    """A change of a spec that moves an error to expect from ``before`` to ``after``.

    ``write`` is what to declare of ``columns``, the error that of ``marginals``; about so many
    ``pairs_before`` and ``pairs_after`` are counted.
    """

    write: str
    columns: tuple[str, ...]
    marginals: str
    before: float
    after: float
    pairs_before: int
    pairs_after: int

    @property
    def gain(self) -> float:
        """The part of the error that it takes away."""
        return 1 - self.after / self.before

    @property
    def begins_pairs(self) -> bool:
        """Whether pairs are counted by it alone."""
        return self.pairs_after > 0 and not self.pairs_before


@dataclass(frozen=True)
class _Candidate:
    """A change of ``columns`` to those of a ``domain``; of a tree, its ``nodes`` by the column."""

    write: str
    columns: tuple[str, ...]
    domain: domain.Domain
    nodes: Mapping[str, int] = field(default_factory=dict)


def changes_that_gain(task: Task, plan: AnyPlan, budget: Budget) -> list[SpecChange]:
    """The changes of the spec of an only table that would gain, the best first.

    None of persons with several rows, under acceptance criteria, or where no error is forecast.
    """
    if plan.parts or task.acceptance or forecast_errors(task, plan) is None:
        return []

    def tried(candidates: Iterable[_Candidate]) -> list[SpecChange]:
        changes = (_tried(candidate, task, plan, budget) for candidate in candidates)
        return [change for change in changes if change is not None]

    coarser = tried([*_coarser_numbers(task), *_trees(task)])
    fewer, modelled = tried(_without_columns(task)), len(task.domain.modelled)
    least = {c: max(_WORTH_A_COLUMN, _OF_SHARE * len(c.columns) / modelled) for c in fewer}
    named = [change for change in coarser if change.gain >= _MATERIAL]
    named += [change for change in fewer if change.gain >= least[change]][:1]
    named += [change for change in fewer if change.begins_pairs][:1]
    return sorted(dict.fromkeys(named), key=lambda change: -change.gain)


def _tried(candidate: _Candidate, task: Task, plan: AnyPlan, budget: Budget) -> SpecChange | None:
    """What a candidate changes of the errors of a plan; None if it has no plan, or no forecast."""
    changed, method = replace(task, domain=candidate.domain), registry.create(plan.method)
    try:
        new_plan = protocol.make_plan(method, changed, budget)
    except PlanError:
        return None
    cells = candidate.nodes or cells_by_column(changed)
    before, after = forecast_errors(task, plan, cells), forecast_errors(changed, new_plan, cells)
    if before is None or after is None:
        return None
    if candidate.nodes:
        (nodes,) = candidate.nodes.values()
        marginals, errors = f"the {nodes} nodes of the first level", (before.one_way, after.one_way)
    elif before.two_way is None or after.two_way is None:
        return None
    else:
        marginals, errors = "pairs of the columns that stay", (before.two_way, after.two_way)
    pairs = pairs_counted(plan), pairs_counted(new_plan)
    return SpecChange(candidate.write, candidate.columns, marginals, *errors, *pairs)


def _coarser_numbers(task: Task) -> Iterator[_Candidate]:
    """Numbers in the bins in which an evaluation reads them, all at once that have more.

    Bins that grow from zero are for ranges in which most rows lie near zero: those stay.
    """
    fine = {
        column.name: domain.column_of(
            column.name, column.attribute.model_copy(update={"bins": BINS}), Path()
        )
        for column in _free_columns(task)
        if isinstance(column, Grid)
        and not partition.growing_part(column)
        and partition.declared_cells(column).size > marginal_cells(column).size
    }
    if fine:
        yield _Candidate(f"bins: {BINS}", (*fine,), _with_columns(task, fine))


def _trees(task: Task) -> Iterator[_Candidate]:
    """Each list of codes without a tree, in one of its prefixes."""
    for column in _free_columns(task):
        lengths = codelists.prefix_lengths(column.labels or ()) if column.kind == "nominal" else []
        if isinstance(column, Listed) and lengths and not column.levels:
            attribute = column.attribute.model_copy(update={"hierarchy": lengths})
            levels = codelists.resolve_levels(lengths, column.labels, Path())
            tree = replace(column, attribute=attribute, levels=levels)
            nodes = {column.name: partition.tree_of(tree)[0].size}
            with_tree = _with_columns(task, {column.name: tree})
            yield _Candidate(f"hierarchy: {lengths}", (column.name,), with_tree, nodes)


def _without_columns(task: Task) -> Iterator[_Candidate]:
    """The table without the columns of most cells, ever more of them."""
    columns = sorted(_free_columns(task), key=lambda column: -partition.declared_cells(column).size)
    modelled = len(task.domain.modelled)
    counts = {max(math.ceil(share * modelled), 1) for share in _LEFT_OUT}
    for count in sorted(counts):
        if count <= min(len(columns), modelled - 2):
            left = tuple(column.name for column in columns[:count])
            stay = domain.Domain(tuple(c for c in task.domain if c.name not in left))
            yield _Candidate("ignore", left, stay)


def _free_columns(task: Task) -> list[Column]:
    """The columns that no rule and no target names."""
    named = {name for rule in task.constraints for name in rule.attributes} | task.targets.keys()
    return [task.domain[name] for name in task.domain.modelled if name not in named]


def _with_columns(task: Task, changed: Mapping[str, Column]) -> domain.Domain:
    """The domain of a task with some columns ``changed``."""
    return domain.Domain(tuple(changed.get(column.name, column) for column in task.domain))
