"""Rows that workers hold, part by part: a table that gives sums, and rows by number, from there.

A part that a lost worker held is read again, from a source that is pinned: sums are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from cloister.arrays import Integers
from cloister.errors import StorageError
from cloister.schema.block_table import BlockStore, BlockTable
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.parts import SourcePart, read_part, source_parts
from cloister.schema.sources.reading import require_rows
from cloister.schema.spec import Spec
from cloister.schema.validation import RowRule, Validation
from cloister.schema.validation_report import Tally, ValidationReport
from cloister.tasks.data.workers import Workers

_T = TypeVar("_T")

_PART_ROWS = 1 << 20
"""Rows of a part, about: some 14 MB of codes, and a second of reading, so that lost ones are cheap
and what each costs the scheduler, about a millisecond, is little."""


class HeldBlocks(BlockStore):
    """Blocks of rows that workers hold, each with what validation found in it."""

    def __init__(
        self, workers: Workers, domain: Domain, blocks: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        self.domain, self.lengths = domain, lengths
        self._workers, self._blocks = workers, blocks

    def each(
        self, names: Sequence[str], function: Callable[..., _T], *arguments: Sequence[Any]
    ) -> Iterator[_T]:
        """What ``function`` makes of some columns of each block, on the worker that holds it."""
        return self._workers.map(partial(_of_block, names, function), self._blocks, *arguments)

    def total(self, names: Sequence[str], kernel: Callable[[Table], Integers]) -> Integers:
        """The sum of what ``kernel`` counts in each block, added up by the workers."""
        return self._workers.total(partial(_of_block, names, kernel), self._blocks)


def _of_block(
    names: Sequence[str],
    function: Callable[..., _T],
    block: tuple[Table, Tally],
    *arguments: Any,
) -> _T:
    return function(block[0].select(names), *arguments)


def read_on_workers(
    workers: Workers, spec: Spec, domain: Domain, data: Path | None, rules: Sequence[RowRule]
) -> tuple[Table, ValidationReport]:
    """The rows of a spec's source, or of ``data`` in its place, as workers hold them; the report.

    Raises:
        StorageError: the source cannot be read, or the cluster was lost.
        DataError: it is not as declared.
    """
    read = partial(_read_block, spec, domain, tuple(rules))
    parts = workers.closing.enter_context(source_parts(spec, data, _PART_ROWS))
    if any(part.pin is None for part in parts):
        raise StorageError(
            "workers read files, and tables of PostgreSQL 14 or later: a part of a view, or of "
            "another database, may be another when it is read again; leave --workers out"
        )
    blocks = workers.hold(read, parts)
    tallies = list(workers.map(itemgetter(1), blocks))
    whole = Validation.of(spec, domain, rules)
    for tally in tallies:
        whole.tally.add(tally)
    require_rows(spec, data, whole.tally.rows, whole.tally.malformed)
    store = HeldBlocks(workers, domain, blocks, [tally.valid for tally in tallies])
    return BlockTable.over(store), whole.report()


def _read_block(
    spec: Spec, domain: Domain, rules: Sequence[RowRule], part: SourcePart
) -> tuple[Table, Tally]:
    """The rows of a part, on a worker, with what validation found."""
    validation = Validation.of(spec, domain, rules)
    return validation.table(read_part(part, spec)), validation.tally
