"""One combination of a benchmark, run as an ordinary charged release in the benchmark's own home; done once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from cloister.errors import CloisterError, StorageError
from cloister.privacy.ledger import Ledger
from cloister.schema.loading import load_spec, spec_digest
from cloister.schema.spec import PersonUnit
from models.registry import create
from tasks.benchmarks.commands import Answer, Cost, ask
from tasks.benchmarks.config import Benchmark, Combination
from tasks.code import code_version
from tasks.home import Home, private_folder
from tasks.ledgers import open_ledger
from tasks.outputs import replaced
from tasks.plans import write_json

OWN = ("CLOISTER_LEDGER", "CLOISTER_REMOTE", "MLFLOW_TRACKING_URI", "PREFECT_HOME")


@dataclass(frozen=True)
class Run:
    """What one combination gave: its release, what that cost, and its evaluation, which is internal.

    ``error`` is empty unless it failed; a run that failed has no figures, and is tried again next time.
    """

    dataset: str
    method: str
    variant: str
    epsilon: str
    seed: int
    release: str = ""
    accounted: float = 0.0
    cost: Cost | None = None
    evaluation: Mapping[str, Any] | None = None
    error: str = ""

    @classmethod
    def of(cls, combination: Combination, **found: Any) -> Self:
        """The run of a combination."""
        asked = combination
        return cls(asked.dataset, asked.method, asked.variant, str(asked.epsilon), asked.seed, **found)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The run that :meth:`to_json` wrote."""
        return cls(**{**fields, "cost": Cost(**fields["cost"]) if fields["cost"] else None})

    def to_json(self) -> dict[str, Any]:
        """The run as JSON values."""
        return asdict(self)

    def figures(self) -> dict[str, float]:
        """Every figure by name: cost, steps, and the measures against the real rows."""
        figures: dict[str, float] = {}
        if self.cost:
            figures |= {"seconds": self.cost.seconds, "cpu_seconds": self.cost.cpu_seconds}
            figures |= {"memory_mib": self.cost.memory / 2**20}
            figures |= {f"step.{name}.seconds": seconds for name, seconds in self.cost.steps.items()}
        if self.evaluation:
            figures |= self.evaluation["metrics"]
            for found in self.evaluation["violations"]:
                figures[f"violations.{found['name']}.percent"] = found["synthetic_percent"]
                figures[f"violations.{found['name']}.real_percent"] = found["real_percent"]
        return figures


def home_of(benchmark: Benchmark, home: Home) -> Home:
    """The home that a benchmark has for itself: its ledger, releases and finished runs."""
    return Home.current({"CLOISTER_HOME": str(home.folder / "benchmarks" / benchmark.name)})


def require_usable(benchmark: Benchmark) -> None:
    """Check everything about a benchmark that needs no data.

    Raises:
        InputError: a spec or method cannot be used, or a table is not there.
    """
    for combination in benchmark.all_combinations():
        create(combination.method)
        load_spec(combination.spec)
        if not combination.data.is_file():
            raise StorageError(f"the data {combination.data} is not a file; correct datasets in the configuration")


def finished(combination: Combination, own: Home) -> Run | None:
    """The run of a combination that ended well under this code, if there is one."""
    path = _record(combination, own)
    return Run.from_json(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def run(combination: Combination, own: Home) -> Run:
    """Release and evaluate a combination; an error of the release is part of the result."""
    spec = spec_of(combination, own)
    try:
        released = _released(combination, spec, own)
        measured = _evaluated(combination, Path(released.content["files"]["public"]), own)
    except CloisterError as error:
        return Run.of(combination, error=str(error))
    done = Run.of(
        combination,
        release=released.content["release"],
        accounted=released.content["accounted_epsilon"],
        cost=released.cost,
        evaluation=measured.content,
    )
    write_json(_record(combination, own), done.to_json())
    return done


def grant(benchmark: Benchmark, pending: list[Combination], own: Home, by: str) -> None:
    """Grant the benchmark's own ledger what was charged before and what is still to be charged."""
    ledger = open_ledger(own)
    specs = {combination.spec: load_spec(combination.spec) for combination in pending}
    for path, spec in specs.items():
        asked = [combination for combination in pending if combination.spec == path]
        unit = spec.privacy.unit
        name = f"key:{unit.key}" if isinstance(unit, PersonUnit) else unit
        held = _charged(ledger, spec.name, name)
        epsilon = held[0] + sum((c.epsilon for c in asked), Fraction(0))
        delta = held[1] + sum((c.delta for c in asked), Fraction(0))
        reason = f"benchmark {benchmark.name}: {len(asked)} releases"
        ledger.grant(spec.name, name, epsilon, delta, "ever", by, reason)


def spec_of(combination: Combination, own: Home) -> Path:
    """The spec that a combination is released under: the dataset's, or a copy with the constraints of its variant."""
    if combination.constraints is None:
        return combination.spec
    declared = load_spec(combination.spec)
    changed = declared.model_copy(update={"constraints": combination.constraints})
    content = _anchored(changed.model_dump(mode="json", exclude_none=True), declared.folder)
    path = private_folder(own.folder / "specs") / f"{combination.dataset}-{combination.variant}.yaml"
    replaced(path, lambda part: part.write_text(json.dumps(content, indent=1), encoding="utf-8"))  # JSON is YAML
    return path


def _anchored(content: Any, folder: Path) -> Any:
    """The content with the names of value and constraint files made absolute."""
    if isinstance(content, dict):
        return {
            key: str((folder / value).absolute())
            if key == "file" and isinstance(value, str)
            else _anchored(value, folder)
            for key, value in content.items()
        }
    return [_anchored(value, folder) for value in content] if isinstance(content, list) else content


def _released(combination: Combination, spec: Path, own: Home) -> Answer:
    words = ["release", str(spec), "--data", str(combination.data), "--method", combination.method]
    words += ["--epsilon", str(combination.epsilon), "--delta", str(combination.delta)]
    words += ["--seed-sampling", str(combination.seed), "--evaluate", "none"]
    return ask(words, _environment(own))


def _evaluated(combination: Combination, public: Path, own: Home) -> Answer:
    """The measures under the dataset's own spec, whatever the release was told of its constraints."""
    words = ["evaluate", str(combination.spec), "--data", str(combination.data)]
    words += ["--synthetic", str(public / "synthetic.parquet"), "--level", combination.level]
    return ask(words, _environment(own))


def _environment(own: Home) -> dict[str, str]:
    """The environment, with all state in the benchmark's home."""
    kept = {name: value for name, value in os.environ.items() if name not in OWN}
    return kept | {"CLOISTER_HOME": str(own.folder)}


def _record(combination: Combination, own: Home) -> Path:
    digest = spec_digest(load_spec(combination.spec))
    return own.folder / "runs" / f"{combination.key(digest, code_version())}.json"


def _charged(ledger: Ledger, dataset: str, unit: str) -> tuple[Fraction, Fraction]:
    """Epsilon and delta that a ledger holds as charged for a dataset."""
    held = [r for r in ledger.releases(dataset) if r.request.unit == unit and r.state.charged]
    return (
        sum((r.request.epsilon for r in held), Fraction(0)),
        sum((r.request.delta for r in held), Fraction(0)),
    )
