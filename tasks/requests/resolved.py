"""A release request with all defaults resolved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from cloister.devices import AUTO as AUTO_DEVICE
from cloister.devices import Device, resolve_device
from cloister.errors import InputError, PlanError
from cloister.models.auto import AUTO, Choice, choose_method
from cloister.models.registry import create, present_name
from cloister.models.task import Budget, RowSampling, Task
from cloister.models.task_from_spec import task_of
from cloister.schema.declarations import PLAUSIBLE_DENIABILITY, PRIOR_PATTERN
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import (
    UnconfirmedFact,
    load_spec,
    spec_digest,
    unconfirmed_facts,
    unmeasured_facts,
)
from cloister.schema.spec_files.yaml_text import read_marked, spec_error
from cloister.tasks.requests.constraint_lines import constraints_in
from cloister.tasks.requests.options import (
    budget_of,
    public_rows,
    require_seed,
    require_small_delta,
    rows_of,
    sampling_wanted,
)
from cloister.tasks.requests.release_request import ReleaseRequest

_OF_TABLES = "relational"
"""What auto means where there are several tables."""

_OF_TABLES_REASON = "of several tables, the rows of each by the usual method"


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


def resolve(request: ReleaseRequest) -> ResolvedRequest:
    """The request with every default resolved.

    Raises:
        SpecError: the spec cannot be used, or holds what was read from the data.
        PlanError: epsilon, delta, the number of rows or the sampling cannot be.
        InputError: the seed cannot be, there is no such method, device or earlier release, or no
            database in which tables could be replaced.
    """
    if request.replace and not request.database:
        raise InputError("--replace is of tables in a database; give its URL with --out")
    path = request.spec.absolute()
    declared = load_spec(path)
    require_public(path, declared)
    if declared.tables and request.data:
        raise InputError("--data names one file, and the dataset has several tables; leave it out")
    if request.prior and not re.fullmatch(PRIOR_PATTERN, request.prior):
        raise InputError("--prior names a release, such as r-0123456789, or latest; give one")
    require_seed(request)
    budget, sampling = budget_of(declared, request), sampling_wanted(declared, request)
    require_small_delta(budget, declared)
    with constraints_in(path):
        choice = method_of(declared, request, budget)
    decided = {
        "spec": path,
        "method": choice.method,
        "epsilon": str(budget.epsilon),
        "delta": str(budget.delta),
        "rows": rows_of(declared, request),
        "data": request.data.absolute() if request.data else None,
        "sampling": sampling.way,
        "resample": sampling.resampled,
        "accept_reject": sampling.tries,
        "device": str(resolve_device(request.device or declared.release.device or AUTO_DEVICE)),
        "prior": request.prior or declared.release.prior,
        "digest": spec_digest(declared),
        "reason": choice.reason,
    }
    return ResolvedRequest(**(dict(request) | decided))


def method_of(declared: Spec, request: ReleaseRequest, budget: Budget) -> Choice:
    """The method of a release: as the command or the spec says, or chosen by public facts.

    Raises:
        PlanError: no method has a plan, or the spec does not declare the number of rows.
        InputError: there is no such method.
    """
    if (asked := declared.release.method if request.method is None else request.method) != AUTO:
        name = present_name(asked)
        _require_suited(name, declared)
        _require_guarantee(name, declared)
        _require_views(name, declared)
        return Choice(
            name, "named by the spec" if request.method is None else "named on the command line"
        )
    if declared.tables:
        _require_guarantee(_OF_TABLES, declared)
        return Choice(_OF_TABLES, _OF_TABLES_REASON)
    rows = {declared.name: public_rows(declared)}
    task = task_of(declared, rows, rows_of(declared, request))
    assert isinstance(task, Task)
    choice = choose_method(replace(task, sampling=sampling_wanted(declared, request)), budget)
    _require_guarantee(choice.method, declared)
    _require_views(choice.method, declared)
    return choice


def _require_suited(method: str, declared: Spec) -> None:
    several = bool(declared.tables)
    if create(method).of_database != several:
        of = "several tables, and the spec declares one" if not several else "one table"
        raise PlanError(f"method '{method}' is of {of}; name another with --method")


def _require_views(method: str, declared: Spec) -> None:
    """Check that what a spec says of views is said of a method that counts views."""
    if declared.release.dpview and "dpview" not in method:
        raise PlanError(
            f"release.dpview is of methods dpview*, and not of method '{method}'; leave it out, or "
            "name one of them with --method"
        )


def _require_guarantee(method: str, declared: Spec) -> None:
    """Check that a method gives the guarantee that a spec declares, no stronger one."""
    deniable = declared.release.guarantee == PLAUSIBLE_DENIABILITY
    if deniable and not create(method).gives_deniability:
        raise PlanError(
            f"release.guarantee: {PLAUSIBLE_DENIABILITY} is of method deniability, and method "
            f"'{method}' is differentially private; leave it out, or use --method deniability"
        )


def require_public(path: Path, spec: Spec) -> None:
    """Check that nothing in a spec was read from the data without a confirmation or a measurement.

    Raises:
        SpecError: lists all that was, with line, rule and remedy.
    """
    require_none(path, [*unconfirmed_facts(spec), *unmeasured_facts(spec)])


def require_none(path: Path, findings: Sequence[UnconfirmedFact]) -> None:
    """Check that nothing was found wrong in a spec file.

    Raises:
        SpecError: lists the findings by their lines.
    """
    if findings:
        document = read_marked(path)
        raise spec_error(path, [document.problem(*finding) for finding in findings])
