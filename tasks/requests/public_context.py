"""The declared context of a request: public inputs only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from cloister.devices import Device
from cloister.errors import InputError, SpecError
from cloister.models.task import AnyTask, RowSampling, Task
from cloister.models.task_from_spec import task_of
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.tasks.requests.constraint_lines import constraints_in
from cloister.tasks.requests.options import public_rows
from cloister.tasks.requests.resolved import ResolvedRequest


@dataclass(frozen=True)
class PublicContext:
    """The declared context of a request: public."""

    spec: Spec
    task: AnyTask

    def with_sampling(self, sampling: RowSampling) -> PublicContext:
        """The context of rows that are drawn in this way; several tables have one way."""
        if not isinstance(self.task, Task):
            return self
        return replace(self, task=replace(self.task, sampling=sampling))

    def computed_on(self, device: Device) -> PublicContext:
        """The context of a release whose tensors are on a device."""
        if isinstance(self.task, Task):
            return replace(self, task=replace(self.task, device=device))
        tables = {name: replace(own, device=device) for name, own in self.task.tables.items()}
        return replace(self, task=replace(self.task, tables=tables))

    @property
    def tables(self) -> dict[str, PublicContext]:
        """The context of each table by its name."""
        if isinstance(self.task, Task):
            return {self.spec.name: self}
        tasks = self.task.tables
        return {name: PublicContext(self.spec.table(name), task) for name, task in tasks.items()}

    @property
    def one(self) -> Task:
        """The task of the only table.

        Raises:
            InputError: there are several.
        """
        if isinstance(self.task, Task):
            return self.task
        raise InputError(
            f"'{self.spec.name}' has several tables, and this is done with one; name its own spec"
        )

    @property
    def files(self) -> dict[str, str]:
        """The name of each table's synthetic file, without its ending."""
        single = isinstance(self.task, Task)
        return {name: "synthetic" if single else name for name in self.tables}

    @property
    def unit(self) -> str:
        """The name that the ledger knows the privacy unit by; the same persons share a budget."""
        return self.spec.privacy.unit_name


def public_context_of(request: ResolvedRequest) -> PublicContext:
    """The declared context of a request.

    Raises:
        SpecError: the spec cannot be used, or was changed since the request was made.
        PlanError: the spec does not declare the number of rows.
        ConstraintError: a constraint cannot be used.
    """
    context = _public_context(request.spec, request.digest, request.rows, request.row_sampling)
    return context.computed_on(request.computed_on)


@lru_cache(maxsize=4)
def _public_context(path: Path, digest: str, wanted: int, sampling: RowSampling) -> PublicContext:
    spec = load_spec(path)
    if spec_digest(spec) != digest:
        raise SpecError(f"{path} was changed since the release began; run the command again")
    with constraints_in(path):
        context = declared_context(spec, public_rows(spec), wanted)
    return context.with_sampling(sampling)


def declared_context(spec: Spec, rows: int, wanted: int | None = None) -> PublicContext:
    """The declared context of a spec, for data of ``rows`` rows.

    ``wanted`` are to be released, if not as many.

    Raises:
        ConstraintError: a constraint cannot be used.
    """
    counts = {name: part.privacy.rows.public or rows for name, part in spec.parts.items()}
    return PublicContext(spec, task_of(spec, counts if spec.tables else {spec.name: rows}, wanted))
