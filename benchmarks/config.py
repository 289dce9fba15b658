"""A benchmark as its configuration file declares it, and its single runs.

Paths are relative to the working directory, as ``source.path`` of a spec is; ``${NAME}`` in them is
read from the environment.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from os import environ
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from cloister.devices import PATTERN
from cloister.errors import InputError, SpecError
from cloister.evaluation import Level, Panel
from cloister.privacy.exact import decimal
from cloister.schema.attributes import Declared
from cloister.schema.declarations import (
    AcceptRejectSpec,
    ConstraintDeclaration,
    DeclaredDelta,
    DeclaredEpsilon,
    Sampling,
)
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.spec_files.yaml_text import Key, SpecProblem, read_marked, spec_error
from cloister.tasks.release.comparison import EvaluationOptions

DECLARED = "declared"
Given = Literal["declared", "read"]
Shown = Literal["violations", "utility", "relations", "conjunctions", "network", "cost"]
NOISELESS = "no-cor"
ReferenceName = Literal["no-cor", "lap"]
REFERENCES: tuple[ReferenceName, ...] = get_args(ReferenceName)
"""What experiments may name as a method: no table, but answers computed with the real rows."""

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]


class Dataset(Declared):
    """A spec, the real table, and why figures of that table may be shown, if they may.

    Of several tables the ``data`` are those of the spec's sources. Classifiers predict the
    ``targets`` alone, all of the spec's if there are none.
    """

    spec: str
    data: str | None = None
    targets: tuple[str, ...] = ()
    public: str | None = Field(default=None, min_length=1)

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of the real table; of several tables those of the spec's sources."""
        if self.data is not None:
            return (Path(expand_path(self.data)),)
        parts = load_spec(Path(expand_path(self.spec))).parts.values()
        return tuple(Path(part.source.path) for part in parts if part.source.path)


class Variant(Declared):
    """A release with other constraints, options, rows or device than declared.

    An empty list switches all constraints off. What is left out is as in the spec.
    """

    constraints: tuple[ConstraintDeclaration, ...] | None = None
    guarantee: str | None = None
    options: dict[str, Any] | None = None
    sampling: Sampling | None = None
    resample: float | None = Field(default=None, ge=0, le=1)
    accept_reject: AcceptRejectSpec | None = None
    device: str | None = Field(default=None, pattern=PATTERN)

    def applied(self, declared: Spec) -> Spec:
        """The spec, changed."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        changed = {
            name: value
            for name, value in given.items()
            if value is not None and name != "constraints"
        }
        release = declared.release.model_copy(update=changed)
        rules = declared.constraints if self.constraints is None else self.constraints
        return declared.model_copy(update={"release": release, "constraints": rules})


class Peer(Declared):
    """Another library: a program that calls it, and its requirements.

    The requirements lie beside the program, in a file of the same name that ends in ``.txt``.
    ``method`` and ``options`` are the program's own; ``seconds`` is the limit of one run in CPU
    seconds, which may take four times as long; ``cells`` of a numeric column that it is given: the
    declared bins, or the 16 that marginals are read by. ``python`` is the program of its Python,
    such as ``python3.12``: the one that runs Cloister, if none is named.
    """

    script: str = Field(pattern=r"\.py$")
    method: str = Field(min_length=1)
    options: dict[str, int | float | str | bool] = {}
    seconds: float = Field(default=900, gt=0)
    cells: Given = "declared"
    python: str = sys.executable

    @property
    def program(self) -> Path:
        """The program, relative to the working directory."""
        return Path(expand_path(self.script))

    @property
    def requirements(self) -> Path:
        """Exact versions of all that its environment holds."""
        return self.program.with_suffix(".txt")


class Experiment(Declared):
    """Every combination of datasets, methods, epsilons and variants, and the tables that show it.

    ``evaluate`` and ``seeds`` are those of the benchmark unless it says so itself; a run that two
    experiments share is done and evaluated once, for the one that asks for more. A peer is named as
    a method, and so are reference answers; they know no constraints, so variants make no difference
    to them.
    """

    name: Word
    title: str
    note: str = ""
    datasets: tuple[Word, ...] = Field(min_length=1)
    methods: tuple[Word, ...] = Field(min_length=1)
    epsilons: tuple[DeclaredEpsilon, ...] = Field(min_length=1)
    variants: tuple[Word, ...] = (DECLARED,)
    evaluate: Level | None = None
    seeds: tuple[int, ...] | None = Field(default=None, min_length=1)
    tables: tuple[Shown, ...] = ("violations", "utility", "cost")


@dataclass(frozen=True)
class Combination:
    """One run of a benchmark and how it is evaluated: a release, unless a ``peer`` makes it.

    Or there is no table at all, but the answers of the ``reference``. ``files`` are the real
    tables, ``seed`` is that of drawing rows. The errors of ``conjunctions``, and those of a
    Bayesian ``network``, are measured only where an experiment shows them.
    """

    dataset: str
    spec: Path
    files: tuple[Path, ...]
    method: str
    variant: str
    changed: Variant | None
    epsilon: Fraction
    delta: Fraction
    seed: int
    evaluation: EvaluationOptions
    peer: Peer | None = None
    reference: ReferenceName | None = None
    conjunctions: bool = False
    network: bool = False

    @property
    def data(self) -> Path:
        """The real table, of one."""
        return self.files[0]

    @property
    def several(self) -> bool:
        """Whether there are several tables, which are where the spec says."""
        return len(self.files) > 1

    @property
    def charged(self) -> bool:
        """Whether it is a release, charged to the benchmark's ledger."""
        return self.peer is None and self.reference is None

    def merged(self, other: Combination) -> Combination:
        """The same run, evaluated for what either asks."""
        most = max(self, other, key=lambda c: get_args(Level).index(c.evaluation.level))
        return replace(
            most,
            conjunctions=self.conjunctions or other.conjunctions,
            network=self.network or other.network,
        )

    @property
    def label(self) -> str:
        """A short name for people."""
        variant = "" if self.variant == DECLARED else f" {self.variant}"
        epsilon = decimal(self.epsilon)
        return f"{self.dataset} {self.method}{variant} epsilon {epsilon} seed {self.seed}"

    def key(self, spec_digest: str, code: str) -> str:
        """Digest of everything that makes the run what it is; 16 hexadecimal digits."""
        rules = self.changed.model_dump(mode="json") if self.changed else None
        sizes = [(str(file.absolute()), file.stat()) for file in self.files]
        parts = [
            *(
                self.dataset,
                self.method,
                rules,
                str(self.epsilon),
                str(self.delta),
                self.seed,
                [self.evaluation.level, self.evaluation.panel, list(self.evaluation.targets)],
                self.conjunctions,
                self.network,
            ),
            *((name, size.st_size, size.st_mtime_ns) for name, size in sizes),
            *(spec_digest, code),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class Benchmark(Declared):
    """Experiments over datasets.

    Each seed is one repeat: a release of its own, with fresh noise.
    """

    name: Word
    delta: DeclaredDelta = Fraction(1, 10**6)
    evaluate: Level = "quick"
    panel: Panel = "nine"
    seeds: tuple[int, ...] = Field(default=(1,), min_length=1)
    datasets: dict[Word, Dataset] = Field(min_length=1)
    variants: dict[Word, Variant] = {}
    peers: dict[Word, Peer] = {}
    experiments: tuple[Experiment, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for experiment in self.experiments:
            for kind, used, known in (
                ("dataset", experiment.datasets, self.datasets),
                ("variant", experiment.variants, {DECLARED: None, **self.variants}),
            ):
                unknown = [name for name in used if name not in known]
                if unknown:
                    raise ValueError(
                        f"experiment '{experiment.name}' has no {kind} '{unknown[0]}'; declare it"
                    )
        return self

    @model_validator(mode="after")
    def _peers_and_references_see_public_tables_only(self) -> Self:
        uncharged = dict.fromkeys(self.peers, "hands dataset '{}' to a peer, whose privacy nobody")
        uncharged |= dict.fromkeys(REFERENCES, "answers queries on dataset '{}', for which nobody")
        for experiment in self.experiments:
            hidden = [name for name in experiment.datasets if self.datasets[name].public is None]
            unpaid = [uncharged[name] for name in experiment.methods if name in uncharged]
            if hidden and unpaid:
                raise ValueError(
                    f"experiment '{experiment.name}' {unpaid[0].format(hidden[0])} accounts; give "
                    "public: REASON if the table is public, or leave peers and reference answers "
                    "out"
                )
        return self

    @model_validator(mode="after")
    def _references_are_shown(self) -> Self:
        for experiment in self.experiments:
            named = [name for name in experiment.methods if name in REFERENCES]
            if named and "conjunctions" not in experiment.tables:
                raise ValueError(
                    f"experiment '{experiment.name}' has nothing to show of '{named[0]}', which "
                    "answers conjunctions alone; add conjunctions to its tables, or leave it out"
                )
        return self

    def only(self, names: Sequence[str]) -> Self:
        """The benchmark with the named experiments alone, in its own order; all if none is named.

        Raises:
            SpecError: it has no experiment of a name.
        """
        known = [experiment.name for experiment in self.experiments]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise SpecError(
                f"the benchmark '{self.name}' has no experiment '{unknown[0]}'; it has "
                f"{', '.join(known)}"
            )
        chosen = tuple(each for each in self.experiments if not names or each.name in names)
        return self.model_copy(update={"experiments": chosen})

    def combinations(self, experiment: Experiment) -> Iterator[Combination]:
        """The runs of one experiment, repeats last."""
        seeds = experiment.seeds or self.seeds
        crossed = itertools.product(
            experiment.datasets, experiment.methods, experiment.variants, experiment.epsilons, seeds
        )
        for dataset, method, variant, epsilon, seed in crossed:
            declared, changed, peer = (
                self.datasets[dataset],
                self.variants.get(variant),
                self.peers.get(method),
            )
            reference = next((name for name in REFERENCES if name == method), None)
            bare = peer is not None or reference is not None
            yield Combination(
                dataset,
                Path(expand_path(declared.spec)),
                declared.files,
                method,
                DECLARED if bare else variant,
                None if bare else changed,
                epsilon,
                self.delta,
                seed,
                EvaluationOptions(
                    experiment.evaluate or self.evaluate, self.panel, declared.targets
                ),
                peer,
                reference,
                "conjunctions" in experiment.tables,
                "network" in experiment.tables,
            )

    def all_combinations(self) -> list[Combination]:
        """The runs of all experiments; one that two experiments share is done once."""
        combinations: dict[str, Combination] = {}
        for combination in itertools.chain.from_iterable(map(self.combinations, self.experiments)):
            known = combinations.setdefault(combination.label, combination)
            combinations[combination.label] = combination.merged(known)
        return list(combinations.values())


def load_benchmark(path: Path) -> Benchmark:
    """The benchmark in a YAML file.

    Raises:
        StorageError: the file cannot be read.
        SpecError: one message that lists every problem with line, keys, rule and remedy.
    """
    document = read_marked(path)
    try:
        return Benchmark.model_validate(document.content)
    except ValidationError as error:
        problems = [_problem(problem, document.line) for problem in error.errors(include_url=False)]
        raise spec_error(path, problems) from None


def expand_path(path: str, environment: Mapping[str, str] = environ) -> str:
    """A path with each ``${NAME}`` replaced by what the environment holds.

    Raises:
        InputError: it holds nothing of that name.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if not environment.get(name):
            raise InputError(
                f"the path {path} needs the environment variable {name}; set it to a folder"
            )
        return environment[name]

    return re.sub(r"\$\{(\w+)\}", value, path)


def require_public(benchmark: Benchmark) -> None:
    """Check that the figures of all datasets may be shown in a document.

    Raises:
        SpecError: names the first whose real table is not declared public.
    """
    hidden = [name for name, dataset in benchmark.datasets.items() if dataset.public is None]
    if hidden:
        raise SpecError(
            f"dataset '{hidden[0]}' is not declared public, and figures that compare with its real "
            "rows are not private; give public: REASON in the configuration, or leave --markdown "
            "out"
        )


def _problem(details: ErrorDetails, line: Callable[[Sequence[Key]], int]) -> SpecProblem:
    keys = details["loc"]
    unknown = details["type"] == "extra_forbidden"
    rule = (
        "unknown key; see the examples in benchmarks/"
        if unknown
        else details["msg"].removeprefix("Value error, ")
    )
    return SpecProblem(line(keys), keys, rule)
