"""A release request with all defaults resolved, and its declared context: public inputs only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from cloister import former_names
from cloister.devices import AUTO as AUTO_DEVICE
from cloister.devices import Device, resolve_device
from cloister.errors import ConstraintError, InputError, PlanError, SpecError
from cloister.models import registry
from cloister.models.task import Budget, DatabaseTask, RowSampling, Task, table_task, task_of
from cloister.privacy.accounting.composition import group_cost
from cloister.schema.blocks import blocks_of
from cloister.schema.declarations import PRIOR_PATTERN, ReleaseSpec
from cloister.schema.spec import Spec
from cloister.schema.spec_files import loading
from cloister.schema.spec_files.foreign_keys import lead_of
from cloister.schema.spec_files.problems import problems_of
from cloister.schema.spec_files.yaml_text import read_marked, spec_error
from cloister.tasks.requests import options
from cloister.tasks.requests.release_request import ReleaseRequest, require_workers

ONLY_TABLE = "synthetic"
"""Name of the synthetic file where there is one table, without its ending."""


@contextmanager
def constraints_in(path: Path) -> Iterator[None]:
    """Add file and line, where known, to the error of a constraint that cannot be read or bound.

    Raises:
        ConstraintError: the error of the block.
    """
    try:
        yield
    except ConstraintError as error:
        if not error.keys:
            raise
        line = read_marked(path).line(error.keys)
        raise ConstraintError(f"{path.name}, line {line}, {error}", error.keys) from None


class ResolvedRequest(ReleaseRequest):
    """A release request in which the spec and public facts filled what they decide.

    ``digest`` is that of the spec and its files, ``reason`` why the method is used. The device is
    one of this machine; a release may be resumed on another.
    """

    method: str
    epsilon: str
    delta: str
    rows: int
    device: str
    digest: str
    reason: str

    @property
    def budget(self) -> Budget:
        """The privacy budget, exact."""
        return Budget(Fraction(self.epsilon), Fraction(self.delta))

    @property
    def row_sampling(self) -> RowSampling:
        """How rows are drawn under soft constraints."""
        return RowSampling(self.sampling, self.resample or 0.0, self.accept_reject)

    @property
    def computed_on(self) -> Device:
        """Where tensors are computed."""
        return resolve_device(self.device)

    def filled(self, **fields: Any) -> Self:
        """The request with other values of some fields."""
        return self.model_copy(update=fields)


def resolve(request: ReleaseRequest, now: datetime | None = None) -> ResolvedRequest:
    """The request with every default resolved; ``now`` is when its run is due.

    Raises:
        SpecError: the spec cannot be used, has a guarantee or options that the method has not, or
            holds what was read from the data.
        PlanError: epsilon, delta, the number of rows or the sampling cannot be.
        InputError: the seed cannot be, there is no such method, device or earlier release, or no
            database in which tables could be replaced.
    """
    if request.replace and not request.database:
        raise InputError("--replace is of tables in a database; give its URL with --out")
    path = request.spec.absolute()
    declared = loading.load_spec(path)
    require_public(path, declared)
    digest, blocks = loading.spec_digest(declared), blocks_of(declared, request.block, now)
    declared = declared.of_blocks(blocks)
    if declared.tables and request.data:
        raise InputError("--data names one file, and the dataset has several tables; leave it out")
    if request.prior is not None and not re.fullmatch(PRIOR_PATTERN, request.prior):
        raise InputError("--prior names a release, such as r-0123456789, or latest; give one")
    options.require_seed(request)
    require_workers(request.workers)
    budget, sampling = (
        options.budget_of(declared, request),
        options.sampling_wanted(declared, request),
    )
    options.require_small_delta(budget, declared)
    with constraints_in(path):
        choice = method_of(declared, request, budget)
    _require_guarantee(path, choice.method, declared.release.guarantee)
    _require_options(path, choice.method, declared.release)
    decided = {
        "spec": path,
        "method": choice.method,
        "epsilon": str(budget.epsilon),
        "delta": str(budget.delta),
        "rows": options.rows_of(declared, request),
        "data": request.data.absolute() if request.data else None,
        "sampling": sampling.way,
        "resample": sampling.resampled,
        "accept_reject": sampling.tries,
        "device": str(resolve_device(request.device or declared.release.device or AUTO_DEVICE)),
        "prior": request.prior or declared.release.prior,
        "block": "..".join(dict.fromkeys((blocks[0], blocks[-1]))) if blocks else None,
        "digest": digest,
        "reason": choice.reason,
    }
    return ResolvedRequest(**(dict(request) | decided))


def method_of(declared: Spec, request: ReleaseRequest, budget: Budget) -> registry.Choice:
    """The method of a release: as the command or the spec says, or chosen by public facts.

    Raises:
        PlanError: no method has a plan, or the spec does not declare the number of rows.
        InputError: there is no such method.
    """
    if (
        method := declared.release.method if request.method is None else request.method
    ) != registry.AUTO:
        name = registry.present_name(method)
        _require_suited(name, declared)
        return registry.Choice(
            name, "named by the spec" if request.method is None else "named on the command line"
        )
    if declared.tables:
        return registry.OF_TABLES
    rows = options.public_rows(declared)
    task = table_task(declared, rows, options.rows_of(declared, request))
    sampling = options.sampling_wanted(declared, request)
    return registry.choose_method(replace(task, sampling=sampling, options={}), budget)


def _require_suited(method: str, declared: Spec) -> None:
    if registry.create(method).of_database != bool(declared.tables):
        of = "one table" if declared.tables else "several tables, and the spec declares one"
        raise PlanError(f"method '{method}' is of {of}; name another with --method")


def _require_options(path: Path, method: str, release: ReleaseSpec) -> None:
    """Check that the options that a spec declares are those of the method."""
    if release.options is None:
        return
    keys, model = ("release", release.options_key), registry.create(method).options
    if model is None and release.options_key in former_names.IGNORED_OPTIONS:
        return
    if model is None:
        text = (
            f"method '{method}' has no options; leave them out, or name a method that has: "
            f"{', '.join(registry.methods_with('options'))}"
        )
        require_none(path, [(keys, text)])
        return
    try:
        model.model_validate(release.options)
    except ValidationError as error:
        problems = problems_of(error, read_marked(path), keys, model)
        raise spec_error(path, problems) from None


def _require_guarantee(path: Path, method: str, guarantee: str) -> None:
    """Check that a method gives the guarantee that a spec declares, no stronger one."""
    if guarantee in registry.create(method).guarantees:
        return
    able = [name for name in registry.offered() if guarantee in registry.create(name).guarantees]
    use = f"leave it out, or use --method {' or '.join(able)}" if able else "leave it out"
    text = f"method '{method}' has no such guarantee: it is differentially private; {use}"
    require_none(path, [(("release", "guarantee"), text)])


def require_public(path: Path, spec: Spec) -> None:
    """Check that nothing in a spec was read from the data without a confirmation or a measurement.

    Raises:
        SpecError: lists all that was, with line, rule and remedy.
    """
    require_none(path, [*loading.unconfirmed_facts(spec), *loading.unmeasured_facts(spec)])


def require_none(path: Path, findings: Sequence[loading.UnconfirmedFact]) -> None:
    """Check that nothing was found wrong in a spec file.

    Raises:
        SpecError: lists the findings by their lines.
    """
    if findings:
        document = read_marked(path)
        raise spec_error(path, [document.problem(*finding) for finding in findings])


@dataclass(frozen=True)
class TableContext:
    """The spec of one table as if it stood alone, and its task: public."""

    spec: Spec
    task: Task


@dataclass(frozen=True)
class PublicContext:
    """The declared context of a request: public."""

    spec: Spec
    task: DatabaseTask

    def with_sampling(self, sampling: RowSampling) -> PublicContext:
        """The context of rows that are drawn in this way."""
        return self._with_tasks(lambda task: replace(task, sampling=sampling))

    def computed_on(self, device: Device) -> PublicContext:
        """The context of a release whose tensors are on a device."""
        return self._with_tasks(lambda task: replace(task, device=device))

    def _with_tasks(self, changed: Callable[[Task], Task]) -> PublicContext:
        tables = {name: changed(task) for name, task in self.task.tables.items()}
        return replace(self, task=replace(self.task, tables=tables))

    @property
    def tables(self) -> dict[str, TableContext]:
        """The context of each table by its name, parents before the tables that refer to them."""
        parts = self.spec.parts
        return {name: TableContext(parts[name], task) for name, task in self.task.tables.items()}

    @property
    def only(self) -> TableContext:
        """The context of the only table.

        Raises:
            InputError: there are several.
        """
        if not self.spec.tables:
            return self.tables[self.spec.name]
        raise InputError(
            f"'{self.spec.name}' has several tables, and this is done with one; name its own spec"
        )

    def of_table(self, name: str) -> str:
        """What a sentence on one of several tables begins with; nothing of the only one."""
        return self.spec.naming(name, "table '{}': ")

    @property
    def files(self) -> dict[str, str]:
        """The name of each table's synthetic file, without its ending."""
        names = {name: name for name in self.task.tables}
        return names if self.spec.tables else {self.spec.name: ONLY_TABLE}

    @property
    def dataset(self) -> str:
        """The account that the ledger charges."""
        return self.spec.account_name

    def price(self, budget: Budget) -> Budget:
        """What the account is charged for a release of this budget: the cost for a group of rows.

        Raises:
            PlanError: its delta would reach 1.
        """
        return Budget(*group_cost(budget.epsilon, budget.delta, self.spec.privacy.group_rows))

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
    key = (request.spec, request.digest, request.block, request.rows, request.row_sampling)
    context = _public_context(*key)
    return context.computed_on(request.computed_on)


@lru_cache(maxsize=4)
def _public_context(
    path: Path, digest: str, block: str | None, wanted: int, sampling: RowSampling
) -> PublicContext:
    spec = loading.load_spec(path)
    if loading.spec_digest(spec) != digest:
        raise SpecError(f"{path} was changed since the release began; run the command again")
    spec = spec.of_blocks(blocks_of(spec, block))
    with constraints_in(path):
        context = declared_context(spec, options.public_rows(spec), wanted)
    return context.with_sampling(sampling)


def declared_context(spec: Spec, rows: int, wanted: int | None = None) -> PublicContext:
    """The declared context of a spec, for data of ``rows`` rows.

    ``wanted`` are to be released, if not as many.

    Raises:
        ConstraintError: a constraint cannot be used.
    """
    counts = {name: part.privacy.rows.public or rows for name, part in spec.parts.items()}
    return PublicContext(spec, task_of(spec, counts | {lead_of(spec): rows}, wanted))
