"""A release request with all defaults resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from cloister.devices import AUTO as AUTO_DEVICE
from cloister.devices import CPU, Device, resolve_device
from cloister.errors import InputError, PlanError
from cloister.evaluation.options import Level
from cloister.models.auto import AUTO, Choice, choose_method
from cloister.models.registry import create, present_name
from cloister.models.task import AS_USUAL, Budget, RowSampling, Task
from cloister.models.task_from_spec import task_of
from cloister.schema.declarations.release import PLAUSIBLE_DENIABILITY
from cloister.schema.drafts.unconfirmed import UnconfirmedFact, unconfirmed_facts, unmeasured_facts
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.schema.spec_files.marked_yaml import read_marked, spec_error
from cloister.tasks.requests.constraint_lines import constraints_in
from cloister.tasks.requests.options import (
    Options,
    budget_of,
    public_rows,
    require_small_delta,
    rows_of,
    sampling_wanted,
    seed_of,
)

_OF_TABLES = "relational"
"""What auto means where there are several tables."""

_OF_TABLES_REASON = "of several tables, the rows of each by the usual method"


@dataclass(frozen=True)
class ResolvedRequest:
    """A release request in which everything but the seed is fixed.

    ``rows`` is the size of the output. ``digest`` is that of the spec and its files, ``by`` the
    person, ``reason`` why the method is used. ``device`` is one of this machine; a release may be
    resumed on another. ``prior`` is the release whose noisy numbers are used again, or the latest.
    """

    spec: Path
    digest: str
    method: str
    budget: Budget
    rows: int
    data: Path | None
    out: Path | None
    csv: bool
    seed: int | None
    evaluate: Level
    by: str
    reason: str
    database: str | None = None
    sampling: RowSampling = AS_USUAL
    device: Device = CPU
    prior: str | None = None
    replace: bool = False

    @classmethod
    def of(cls, spec: Path, options: Options, by: str) -> Self:
        """The request that a spec file and options make.

        Raises:
            SpecError: the spec cannot be used, or holds what was read from the data.
            PlanError: epsilon, delta, the number of rows or the sampling cannot be.
            InputError: the seed cannot be, there is no such method or device, or no database in
                which tables could be replaced.
        """
        if options.replace and not options.database:
            raise InputError("--replace is of tables in a database; give its URL with --out")
        path = spec.absolute()
        declared = load_spec(path)
        require_public(path, declared)
        if declared.tables and options.data:
            raise InputError(
                "--data names one file, and the dataset has several tables; leave it out"
            )
        budget, rows = budget_of(declared, options), rows_of(declared, options)
        sampling = sampling_wanted(declared, options)
        require_small_delta(budget, declared)
        with constraints_in(path):
            choice = method_of(declared, options, budget)
        return cls(
            spec=path,
            digest=spec_digest(declared),
            method=choice.method,
            budget=budget,
            rows=rows,
            data=options.data.absolute() if options.data else None,
            out=options.out.absolute() if options.out else None,
            csv=options.csv,
            seed=seed_of(options),
            evaluate=options.evaluate,
            by=by,
            reason=choice.reason,
            database=options.database,
            sampling=sampling,
            device=resolve_device(options.device or declared.release.device or AUTO_DEVICE),
            prior=options.prior or declared.release.prior,
            replace=options.replace,
        )

    def with_seed(self, seed: int | None) -> ResolvedRequest:
        """The same request with another seed for drawing rows."""
        return replace(self, seed=seed)

    def with_prior(self, release: str | None) -> ResolvedRequest:
        """The same request, that uses the numbers of this release again."""
        return replace(self, prior=release)

    def to_json(self) -> dict[str, Any]:
        """The request as JSON values."""
        fields = asdict(self) | {"spec": str(self.spec)}
        fields["budget"] = {"epsilon": str(self.budget.epsilon), "delta": str(self.budget.delta)}
        return fields | {
            name: str(fields[name]) if fields[name] else None for name in ("data", "out")
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The request that :meth:`to_json` wrote."""
        budget = Budget(Fraction(fields["budget"]["epsilon"]), Fraction(fields["budget"]["delta"]))
        places = {name: Path(fields[name]) if fields[name] else None for name in ("data", "out")}
        made = {
            "budget": budget,
            "sampling": RowSampling(**fields.get("sampling", {})),
            "device": Device(**fields.get("device", {})),
        }
        return cls(**(fields | places | made | {"spec": Path(fields["spec"])}))


def method_of(declared: Spec, options: Options, budget: Budget) -> Choice:
    """The method of a release: as the command or the spec says, or chosen by public facts.

    Raises:
        PlanError: no method has a plan, or the spec does not declare the number of rows.
        InputError: there is no such method.
    """
    if (asked := declared.release.method if options.method is None else options.method) != AUTO:
        name = present_name(asked)
        _require_suited(name, declared)
        _require_guarantee(name, declared)
        _require_views(name, declared)
        return Choice(
            name, "named by the spec" if options.method is None else "named on the command line"
        )
    if declared.tables:
        _require_guarantee(_OF_TABLES, declared)
        return Choice(_OF_TABLES, _OF_TABLES_REASON)
    rows = {declared.name: public_rows(declared)}
    task = task_of(declared, rows, rows_of(declared, options))
    assert isinstance(task, Task)
    choice = choose_method(replace(task, sampling=sampling_wanted(declared, options)), budget)
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
