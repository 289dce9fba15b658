"""What one combination of a benchmark gave, and the evaluation that all share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from cloister.benchmarks.commands import Cost, run_cloister
from cloister.benchmarks.config import Benchmark, Combination
from cloister.benchmarks.measures.conjunctions import conjunction_figures, measure_conjunctions
from cloister.benchmarks.measures.networks import network_figures
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version

OWN = ("CLOISTER_LEDGER", "CLOISTER_REMOTE", "MLFLOW_TRACKING_URI", "PREFECT_HOME")


@dataclass(frozen=True)
class Run:
    """The cost and the evaluation of one combination; the evaluation is internal.

    ``release`` is empty for a peer's run and for reference answers. ``error`` is empty unless the
    run failed. A failed run is tried again next time, unless the failure is a ``finding``: the
    peer's own program failed or ran out of time.
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
    finding: bool = False
    peer: bool = False

    @classmethod
    def of(cls, combination: Combination, **results: Any) -> Self:
        """The run of a combination."""
        of_peer = combination.peer is not None
        return cls(
            combination.dataset,
            combination.method,
            combination.variant,
            str(combination.epsilon),
            combination.seed,
            peer=of_peer,
            **results,
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The run that :meth:`to_json` wrote."""
        return cls(**{**fields, "cost": Cost(**fields["cost"]) if fields["cost"] else None})

    def to_json(self) -> dict[str, Any]:
        """The run as JSON values."""
        return asdict(self)

    def figures(self) -> dict[str, float]:
        """Every figure by name: cost, steps, and the measures against the real rows.

        None if the run failed.
        """
        figures: dict[str, float] = {}
        if self.error:
            return figures
        if self.cost:
            figures |= {"seconds": self.cost.seconds, "cpu_seconds": self.cost.cpu_seconds}
            figures |= {"memory_mib": self.cost.memory / 2**20}
            figures |= {
                f"step.{name}.seconds": seconds for name, seconds in self.cost.steps.items()
            }
        if self.evaluation:
            figures |= self.evaluation.get("metrics", {})
            figures |= conjunction_figures(self.evaluation.get("conjunctions", ()))
            figures |= network_figures(self.evaluation.get("network", ()))
            for violation in self.evaluation.get("violations", ()):
                figures[f"violations.{violation['name']}.percent"] = violation["synthetic_percent"]
                figures[f"violations.{violation['name']}.real_percent"] = violation["real_percent"]
        return figures


def home_of(benchmark: Benchmark, home: Home) -> Home:
    """The home that a benchmark has for itself: its ledger, releases and finished runs."""
    return Home.current({"CLOISTER_HOME": str(home.folder / "benchmarks" / benchmark.name)})


def evaluate_table(combination: Combination, synthetic: Path, bench_home: Home) -> dict[str, Any]:
    """The measures under the dataset's own spec, whatever constraints the release knew.

    Raises:
        CloisterError: the evaluation failed.
    """
    evaluation, counted = combination.evaluation, {}
    if combination.conjunctions:
        spec, data = combination.spec, combination.data
        counted = {"conjunctions": measure_conjunctions(spec, data, synthetic)}
        if evaluation.level == "none":
            return counted
    words = ["evaluate", str(combination.spec)]
    words += [] if combination.several else ["--data", str(combination.data)]
    words += [
        "--synthetic",
        str(synthetic),
        "--level",
        evaluation.level,
        "--panel",
        evaluation.panel,
    ]
    words += [word for target in evaluation.targets for word in ("--target", target)]
    return run_cloister(words, environment_of(bench_home)).content | counted


def record_of(combination: Combination, bench_home: Home, specs: Sequence[Path]) -> Path:
    """The file of a finished run by this code, under the given specs."""
    digest = " ".join(spec_digest(load_spec(path)) for path in specs)
    return bench_home.folder / "runs" / f"{combination.key(digest, code_version())}.json"


def environment_of(bench_home: Home) -> dict[str, str]:
    """The environment, with all state in the benchmark's home."""
    variables = {name: value for name, value in os.environ.items() if name not in OWN}
    return variables | {"CLOISTER_HOME": str(bench_home.folder)}
