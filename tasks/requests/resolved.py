"""A release request with all defaults resolved, and its declared context: public inputs only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from cloister.devices import AUTO as AUTO_DEVICE
from cloister.devices import CPU, Device, resolve_device
from cloister.errors import InputError, PlanError, SpecError
from cloister.evaluation.options import Level
from cloister.privacy.exact import exact
from cloister.schema.declarations.release import MOST_TRIES, PLAUSIBLE_DENIABILITY, Sampling
from cloister.schema.drafts.unconfirmed import UnconfirmedFact, unconfirmed_facts, unmeasured_facts
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.schema.spec_files.marked_yaml import read_marked, spec_error
from models.auto import AUTO, Choice, choose_method
from models.registry import create, present_name
from models.task import AS_USUAL, AnyTask, Budget, RowSampling, Task
from models.task_from_spec import rows_by_default, sampling_of, task_of
from tasks.requests.constraint_lines import constraints_in
from tasks.requests.limits import MOST_ROWS, MOST_SEED

# Least epsilon: with less, every answer of every method is noise.
_LEAST_EPSILON = Fraction(1, 10**9)
# Greatest epsilon: a greater one promises nothing.
_GREATEST_EPSILON = 1000


@dataclass(frozen=True)
class Options:
    """What a command line may say about a release; what is None is as the spec says.

    ``epsilon`` and ``delta`` are text, so that they are exact. ``seed`` fixes the drawing of rows,
    never the noise. ``database`` is the URL of one to load the tables into, which ``replace`` those
    that an earlier release made there. ``sampling``, ``resample`` and ``tries`` (of accept-reject)
    are how rows are drawn under soft constraints. ``device`` is auto, cpu, cuda or cuda:NUMBER.
    ``prior`` is an earlier release whose noisy numbers are used again, or the latest.
    """

    method: str | None = None
    epsilon: str | None = None
    delta: str | None = None
    rows: int | None = None
    data: Path | None = None
    out: Path | None = None
    csv: bool = False
    seed: int | None = None
    evaluate: Level = "quick"
    database: str | None = None
    sampling: Sampling | None = None
    resample: float | None = None
    tries: int | None = None
    device: str | None = None
    prior: str | None = None
    replace: bool = False


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
        budget, rows = budget_of(declared, options), _rows(declared, options)
        sampling = _sampling(declared, options)
        require_small_delta(budget, declared)
        with constraints_in(path):
            choice = method_of(declared, options, budget)
        return cls(
            path,
            spec_digest(declared),
            choice.method,
            budget,
            rows,
            options.data.absolute() if options.data else None,
            options.out.absolute() if options.out else None,
            options.csv,
            _seed(options),
            options.evaluate,
            by,
            choice.reason,
            options.database,
            sampling,
            resolve_device(options.device or declared.release.device or AUTO_DEVICE),
            options.prior or declared.release.prior,
            options.replace,
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


@dataclass(frozen=True)
class PublicContext:
    """The declared context of a request: public."""

    spec: Spec
    task: AnyTask

    def drawn_by(self, sampling: RowSampling) -> PublicContext:
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
    context = _public_context(request.spec, request.digest, request.rows, request.sampling)
    return context.computed_on(request.device)


@lru_cache(maxsize=4)
def _public_context(path: Path, digest: str, wanted: int, sampling: RowSampling) -> PublicContext:
    spec = load_spec(path)
    if spec_digest(spec) != digest:
        raise SpecError(f"{path} was changed since the release began; run the command again")
    with constraints_in(path):
        context = declared_context(spec, public_rows(spec), wanted)
    return context.drawn_by(sampling)


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
        raise PlanError(
            "auto chooses among methods of one table; name one of several with --method"
        )
    rows = {declared.name: public_rows(declared)}
    task = task_of(declared, rows, _rows(declared, options))
    assert isinstance(task, Task)
    choice = choose_method(replace(task, sampling=_sampling(declared, options)), budget)
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


def declared_context(spec: Spec, rows: int, wanted: int | None = None) -> PublicContext:
    """The declared context of a spec, for data of ``rows`` rows.

    ``wanted`` are to be released, if not as many.

    Raises:
        ConstraintError: a constraint cannot be used.
    """
    counts = {name: part.privacy.rows.public or rows for name, part in spec.parts.items()}
    return PublicContext(spec, task_of(spec, counts if spec.tables else {spec.name: rows}, wanted))


def public_rows(spec: Spec) -> int:
    """The declared number of rows of the data.

    Raises:
        PlanError: the spec marks it to be measured, which is a step of its own.
    """
    rows = spec.privacy.rows.public
    if rows is None:
        raise PlanError(
            f"spec '{spec.name}': the number of rows is to be measured; run cloister spec measure, "
            "or declare a public "
            "figure, privacy.rows: {public: NUMBER}"
        )
    return rows


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


def require_small_delta(budget: Budget, spec: Spec) -> None:
    """Check that delta is below one in the declared number of rows.

    Zero is for methods of pure epsilon.

    Raises:
        PlanError: it is not.
    """
    rows = public_rows(spec)
    if not 0 <= budget.delta < Fraction(1, rows):
        raise PlanError(
            f"delta should be at least 0 and less than 1 / rows = 1 / {rows}; give another with "
            "--delta"
        )


def budget_of(spec: Spec, options: Options) -> Budget:
    """The budget of the options, else the one that a spec declares.

    Raises:
        PlanError: epsilon or delta cannot be.
    """
    epsilon = (
        spec.release.epsilon if options.epsilon is None else _amount("epsilon", options.epsilon)
    )
    delta = spec.release.delta if options.delta is None else _amount("delta", options.delta)
    if epsilon <= 0:
        raise PlanError("epsilon should be above 0; give a positive one with --epsilon")
    if epsilon < _LEAST_EPSILON:
        raise PlanError(
            f"epsilon should be at least {float(_LEAST_EPSILON)}: with less, all would be noise; "
            "raise --epsilon"
        )
    if epsilon > _GREATEST_EPSILON:
        raise PlanError(
            f"epsilon should be at most {_GREATEST_EPSILON}: a greater one promises nothing; lower "
            "--epsilon"
        )
    return Budget(epsilon, delta)


def _amount(name: str, text: str) -> Fraction:
    try:
        return exact(text)
    except InputError:
        raise PlanError(
            f"{name} should be a finite number; give one such as 0.5, 1e-6 or 1/3 with --{name}"
        ) from None


def _rows(spec: Spec, options: Options) -> int:
    declared = spec.release.rows or rows_by_default(spec, public_rows(spec))
    rows = declared if options.rows is None else options.rows
    if not 1 <= rows <= MOST_ROWS:
        raise PlanError(
            f"the number of rows should be from 1 to {MOST_ROWS:,}; give another one with --rows"
        )
    return rows


def _sampling(spec: Spec, options: Options) -> RowSampling:
    """How rows are drawn under soft constraints: as the options say, else as a spec does."""
    declared = sampling_of(spec.release)
    if spec.tables and (options.sampling or declared.way):
        raise PlanError(
            "release.sampling is of one table, and the dataset has several; leave it out"
        )
    share = declared.resampled if options.resample is None else options.resample
    tries = declared.tries if options.tries is None else options.tries
    if not 0 <= share <= 1:
        raise PlanError(
            "the share of cells that are drawn anew should be from 0 to 1; give another one with "
            "--resample"
        )
    if tries is not None and not 1 <= tries <= MOST_TRIES:
        raise PlanError(
            f"the tries of accept-reject should be from 1 to {MOST_TRIES:,}; give another number "
            "with --accept-reject"
        )
    return RowSampling(options.sampling or declared.way, share, tries)


def _seed(options: Options) -> int | None:
    if options.seed is not None and not 0 <= options.seed <= MOST_SEED:
        raise InputError(
            "the seed should be from 0 to 2^63 - 1; give another one with --seed-sampling"
        )
    return options.seed
