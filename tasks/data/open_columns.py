"""The raw columns of a measurement, as its session opens them: read and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cloister.errors import DataError
from cloister.models.task import AnyTask
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateColumns
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.randomness import noise_source
from cloister.schema.parsing import parse
from cloister.schema.sources.reading import read_frame
from cloister.schema.sources.storage_types import texts
from cloister.schema.spec import PersonUnit, Spec
from cloister.tasks.data.contribution_bound import person_numbers, rows_within_bound
from cloister.tasks.data.session import RowSource, Session, keyed_digest
from cloister.tasks.domains.plan import domain_context
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home

ColumnsSession = Session[pd.DataFrame, PrivateColumns]


class ColumnsSource(RowSource[pd.DataFrame, PrivateColumns]):
    """The raw columns of a measurement, whose domains are not known yet, behind their own door."""

    def context(self, request: ResolvedRequest) -> PublicContext:
        """The declared context before any domain is known."""
        return domain_context(request)

    def read_rows(
        self, release: str, request: ResolvedRequest, home: Home
    ) -> tuple[pd.DataFrame, str]:
        """The rows, bounded in number for each person, and the digest of all that were read.

        Raises:
            StorageError: the data cannot be read.
            DataError: it has other columns than declared, or rows that belong to no person.
        """
        spec, key = self.context(request).spec, home.key()
        frame, unit = read_frame(spec, request.data), spec.privacy.unit
        rows = (
            _bound_contribution(frame, unit, spec, key) if isinstance(unit, PersonUnit) else frame
        )
        return rows, keyed_digest(b"columns", {"": cell_hashes(frame)}, release, key)

    def door(
        self,
        rows: pd.DataFrame,
        task: AnyTask,
        planned: Event,
        journal: Journal,
        home: Home,
    ) -> PrivateColumns:
        """The door of raw columns; the journal holds numbers in place of texts."""
        return PrivateColumns(rows, home.key(), task.neighbours, planned, journal, noise_source())


def _bound_contribution(
    frame: pd.DataFrame, unit: PersonUnit, spec: Spec, key: bytes
) -> pd.DataFrame:
    """The rows of a frame with at most ``unit.max_rows`` of each person, person by person.

    Rows without a readable person are left out, or refused where ``on_invalid`` is ``fail``.

    Raises:
        DataError: a row has no person, under ``fail``.
    """
    typed, _ = parse(frame[unit.key], spec.attributes[unit.key])
    known = np.flatnonzero(typed.notna().to_numpy(dtype=bool))
    if len(known) < len(typed) and spec.validation.on_invalid == "fail":
        raise DataError(
            f"column '{unit.key}' identifies persons but lacks values; give every row one, or set "
            "validation.on_invalid to drop"
        )
    people, cells = person_numbers(typed.iloc[known], key), cell_hashes(frame.iloc[known])
    kept = rows_within_bound(people, (values for _, values in cells), unit.max_rows, key)
    return frame.iloc[known[kept]]


def cell_hashes(frame: pd.DataFrame) -> Iterator[tuple[str, NDArray[Any]]]:
    """A 64-bit hash (n,) of each cell of each column, by its name."""
    for name in frame.columns:
        yield str(name), pd.util.hash_pandas_object(texts(frame[name]), index=False).to_numpy()
