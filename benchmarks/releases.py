"""One combination of a benchmark, run as an ordinary charged release in the benchmark's own home.

Done once.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from cloister.benchmarks.commands import Answer, run_cloister
from cloister.benchmarks.config import Benchmark, Combination, expand_path
from cloister.benchmarks.measures.conjunctions import BINARY, measure_binary
from cloister.benchmarks.measures.networks import measure_network
from cloister.benchmarks.runs import Run, environment_of, evaluate_table, record_of
from cloister.errors import CloisterError
from cloister.figures import count_of
from cloister.privacy.ledger import Ledger
from cloister.schema.spec_files.loading import anchored, load_spec
from cloister.tasks.home.files import replace_file, write_json
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.ledger.access import open_ledger


def finished_run(combination: Combination, bench_home: Home) -> Run | None:
    """The release of a combination that ended well under this code, if there is one."""
    path = _record(combination, bench_home)
    return Run.from_json(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def run(combination: Combination, bench_home: Home) -> Run:
    """Release and evaluate a combination; an error of the release is part of the result."""
    spec = spec_of(combination, bench_home)
    try:
        released = _released(combination, spec, bench_home)
        made = Path(released.content["files"]["public"])
        made = made if combination.several else made / "synthetic.parquet"
        model = bench_home.release(released.content["release"]) / "model"
        measured = evaluate_table(combination, made, bench_home)
        measured |= _binary(combination, model) | _network(combination, model)
    except CloisterError as error:
        return Run.of(combination, error=str(error))
    done = Run.of(
        combination,
        release=released.content["release"],
        accounted=released.content["accounted_epsilon"],
        cost=released.cost,
        evaluation=measured,
    )
    write_json(_record(combination, bench_home), done.to_json())
    return done


def grant(benchmark: Benchmark, pending: list[Combination], bench_home: Home, by: str) -> None:
    """Grant the benchmark's own ledger what was charged before and what is still to be charged."""
    ledger = open_ledger(bench_home)
    specs = {combination.spec: load_spec(combination.spec) for combination in pending}
    for path, spec in specs.items():
        requested = [combination for combination in pending if combination.spec == path]
        name = spec.privacy.unit_name
        charged = _charged(ledger, spec.name, name)
        epsilon = charged[0] + sum((c.epsilon for c in requested), Fraction(0))
        delta = charged[1] + sum((c.delta for c in requested), Fraction(0))
        reason = f"benchmark {benchmark.name}: {count_of(len(requested), 'release')}"
        ledger.grant(spec.name, name, epsilon, delta, "ever", by, reason)


def spec_of(combination: Combination, bench_home: Home) -> Path:
    """The spec of a combination: the dataset's, or a copy with what its variant changes."""
    if combination.changed is None:
        return combination.spec
    declared = load_spec(combination.spec)
    changed = combination.changed.applied(declared)
    content = anchored(changed.to_json(), lambda file: str(_absolute(file, declared.folder)))
    path = (
        private_folder(bench_home.folder / "specs")
        / f"{combination.dataset}-{combination.variant}.yaml"
    )
    replace_file(
        path, lambda part: part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    )  # JSON is YAML
    return path


def _absolute(path: str, folder: Path) -> Path:
    """A path beside the spec; one that names a variable is relative to the working directory."""
    return (Path(expand_path(path)) if "${" in path else folder / path).absolute()


def _released(combination: Combination, spec: Path, bench_home: Home) -> Answer:
    words = ["release", str(spec), "--method", combination.method]
    words += [] if combination.several else ["--data", str(combination.data)]
    words += ["--epsilon", str(combination.epsilon), "--delta", str(combination.delta)]
    words += ["--seed-sampling", str(combination.seed), "--evaluate", "none"]
    return run_cloister(words, environment_of(bench_home))


def _binary(combination: Combination, model: Path) -> dict[str, Any]:
    """The errors of the binary columns of a released model, under a name; nothing without them."""
    if not combination.conjunctions:
        return {}
    counted = measure_binary(combination.spec, combination.data, model, combination.seed)
    return {} if counted is None else {BINARY: counted}


def _network(combination: Combination, model: Path) -> dict[str, Any]:
    """The errors of a released Bayesian network, under a name; nothing without one."""
    if not combination.network:
        return {}
    measured = measure_network(combination.spec, combination.data, model)
    return {} if measured is None else {"network": measured}


def _record(combination: Combination, bench_home: Home) -> Path:
    return record_of(combination, bench_home, (combination.spec, spec_of(combination, bench_home)))


def _charged(ledger: Ledger, dataset: str, unit: str) -> tuple[Fraction, Fraction]:
    """Epsilon and delta that a ledger holds as charged for a dataset."""
    releases = [r for r in ledger.releases(dataset) if r.request.unit == unit and r.state.charged]
    return (
        sum((r.request.epsilon for r in releases), Fraction(0)),
        sum((r.request.delta for r in releases), Fraction(0)),
    )
