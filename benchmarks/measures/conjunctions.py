"""The errors of conjunctions in a benchmark, against real rows that are counted once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cloister.evaluation.conjunctions import ConjunctionAnswers, DummyColumns, conjunction_errors
from cloister.models.copula.binary import bin_labels
from cloister.models.discretization.bins import Bins
from cloister.models.protocol import HasBinaryColumns
from cloister.models.storage import load_saved
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.evaluation.compare import table_of
from cloister.tasks.requests.public_context import PublicContext, declared_context

BINARY = "binary columns"
"""What the output of a model is called that is no table of records."""

Measured = list[dict[str, Any]]


@dataclass(frozen=True)
class RealRows:
    """The answers on a real table, its binary columns and its neighbours; internal."""

    context: PublicContext
    columns: DummyColumns
    answers: ConjunctionAnswers

    @property
    def neighbours(self) -> Neighbours:
        """The neighbours that the spec declares."""
        return self.context.one.neighbours

    def errors(self, other: ConjunctionAnswers) -> Measured:
        """The errors of other answers, a record for each set of queries."""
        return [found.to_dict() for found in conjunction_errors(self.columns, self.answers, other)]


def real_rows(spec: Path, data: Path) -> RealRows:
    """The answers on a real table; counted once as long as the file stays the same.

    Raises:
        InputError: the spec or the table cannot be used.
    """
    return _counted(spec, data, data.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _counted(spec: Path, data: Path, changed: int) -> RealRows:
    del changed
    declared = load_spec(spec)
    context = declared_context(declared, declared.privacy.rows.public or 1)
    table = table_of(context, data)
    columns = DummyColumns.of(table.domain)
    return RealRows(context, columns, columns.answers(table))


def measure_conjunctions(spec: Path, data: Path, synthetic: Path) -> Measured:
    """The errors of a synthetic table, a record for each set of queries; internal.

    Raises:
        InputError: the spec or a table cannot be used.
    """
    real = real_rows(spec, data)
    return real.errors(real.columns.answers(table_of(real.context, synthetic)))


def measure_binary(spec: Path, data: Path, model: Path, seed: int) -> Measured | None:
    """The errors of the paper's output: binary columns, as many rows as were released; internal.

    They are drawn from the model in a folder. None if it has not the column of each declared cell,
    as that of ``copula-paper`` has.

    Raises:
        InputError, StorageError: the spec, the table or the model cannot be read.
    """
    real = real_rows(spec, data)
    task, saved = load_saved(model).one
    if not isinstance(saved, HasBinaryColumns):
        return None
    sampler = saved.binary_sampler
    wanted = _column_names(real.columns)
    if sorted(sampler.domain.names) != sorted(wanted):
        return None
    blocks = (
        np.stack([chunk.codes[name] for name in wanted], axis=1).astype(np.float32)
        for chunk in sampler.chunks(task.output_rows, SamplingSource(seed))
    )
    return real.errors(real.columns.counted(blocks))


def _column_names(columns: DummyColumns) -> list[str]:
    """The name of each binary column, as a copula calls it."""
    return [
        f"{cells.name}={label}"
        for cells in columns.cells
        for label in bin_labels(Bins(cells, np.arange(cells.size), np.ones(cells.size)))
    ]


def conjunction_figures(measured: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Average and largest error by set and percent of queries: ``conjunctions.2-way.99.average``.

    In rows.
    """
    return {
        f"conjunctions.{found['queries']}.{percent}.{name}": error
        for found in measured
        for percent, errors in found["best"].items()
        for name, error in errors.items()
    }
