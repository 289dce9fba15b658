"""The steps of the benchmark flow: grant, run, summarise, track, document."""

from __future__ import annotations

import csv
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cloister.benchmarks import releases
from cloister.benchmarks.config import REFERENCES, Benchmark, Combination, Experiment
from cloister.benchmarks.measures import references
from cloister.benchmarks.pages.figures import UTILITY, Repeats, repeats_of, statistic, tables_of
from cloister.benchmarks.pages.markdown import (
    Section,
    insert,
    insert_sections,
    render,
    render_alone,
    surroundings,
)
from cloister.benchmarks.pages.plots import draw_experiment
from cloister.benchmarks.peer_runs import peer_steps
from cloister.benchmarks.runs import Run
from cloister.tasks.home.files import replace_file, write_json
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.home.process import reporter
from cloister.tasks.stores.mlflow_store import Tracker, mlflow_key
from cloister.tasks.stores.prefect_runs import step

EXPERIMENT = "benchmarks"
NO_RELEASE = "not a Cloister release"


@dataclass(frozen=True)
class Results:
    """All runs of a benchmark, what each experiment shows, and the folder that holds both.

    Internal.
    """

    runs: tuple[Run, ...]
    sections: tuple[Section, ...]
    folder: Path

    @property
    def failed(self) -> tuple[Run, ...]:
        """The runs that failed and will be tried again."""
        return tuple(run for run in self.runs if run.error and not run.finding)


@step("grant", "grant the budget of benchmark {benchmark.name}")
def grant(benchmark: Benchmark, pending: list[Combination], bench_home: Home, by: str) -> None:
    """Grant the benchmark's own ledger what its releases will cost."""
    releases.grant(benchmark, pending, bench_home, by)


@step("run", "{combination.label}")
def run(combination: Combination, bench_home: Home, home: Home) -> Run:
    """Release one combination, have a peer synthesize it, or answer its queries; and evaluate."""
    with _watched(combination.label):
        if combination.peer:
            return peer_steps.run(combination, bench_home, home)
        answer = references.run if combination.reference else releases.run
        return answer(combination, bench_home)


@step("summarise", "summarise benchmark {benchmark.name}", "runs")
def summarise(benchmark: Benchmark, runs: list[Run], bench_home: Home) -> Results:
    """Write every figure as JSON and CSV, and draw the experiments."""
    folder = private_folder(bench_home.folder / "results")
    rows = [_row(run) for run in runs]
    write_json(
        folder / "results.json",
        {"measured": surroundings(), "runs": [run.to_json() for run in runs]},
    )
    replace_file(folder / "results.csv", lambda part: _write_csv(rows, part))
    sections = tuple(
        _section(benchmark, experiment, runs, folder) for experiment in benchmark.experiments
    )
    return Results(tuple(runs), sections, folder)


@step("track", "track benchmark {benchmark.name}", "results")
def track(benchmark: Benchmark, results: Results, home: Home) -> str:
    """One run in the tracking store with all figures and files; its id."""
    tracker = Tracker.open(home.tracking, home.artifacts)
    tags = {"benchmark": benchmark.name, "internal": "true", **surroundings()}
    tags |= {mlflow_key(f"peer.{name}"): NO_RELEASE for name in benchmark.peers}
    tracked = tracker.begin(
        f"{benchmark.name}-{secrets.token_hex(4)}", EXPERIMENT, "benchmark", tags
    )
    for name, figure in _tracked(benchmark, results).items():
        tracker.client.log_metric(tracked, mlflow_key(name), figure)
    tracker.client.log_artifacts(tracked, str(results.folder), "results")
    tracker.finish(tracked, succeeded=not results.failed)
    return tracked


@step("document", "write the tables of benchmark {benchmark.name}", "results")
def document(benchmark: Benchmark, results: Results, command: str, path: Path) -> None:
    """Write tables into a document, between its markers, and figures into a folder beside it."""
    insert(path, benchmark.name, render(benchmark, command, _shown(results, path), path))


@step("document", "write the tables of some experiments of {benchmark.name}", "results")
def document_some(benchmark: Benchmark, results: Results, command: str, path: Path) -> None:
    """Write the tables of the experiments that were run; those of others stay."""
    texts = render_alone(benchmark, command, _shown(results, path), path)
    insert_sections(path, benchmark.name, texts)


def _shown(results: Results, path: Path) -> list[Section]:
    """What a document shows, with figures copied into a folder beside it."""
    folder = path.parent / path.stem
    folder.mkdir(exist_ok=True)
    return [_beside(section, folder) for section in results.sections]


def _section(
    benchmark: Benchmark, experiment: Experiment, runs: Sequence[Run], folder: Path
) -> Section:
    repeats = repeats_of(benchmark, experiment, runs)
    settings = {
        (c.dataset, c.method, c.variant, str(c.epsilon)) for c in benchmark.combinations(experiment)
    }
    failures = tuple(
        f"{run.dataset}, {run.method}, ε {run.epsilon}, seed {run.seed}: {run.error}"
        for run in runs
        if run.error and (run.dataset, run.method, run.variant, run.epsilon) in settings
    )
    plots = draw_experiment(experiment, repeats, folder / f"{benchmark.name}-{experiment.name}")
    return Section(experiment, tuple(tables_of(experiment, repeats)), plots, failures)


def _beside(section: Section, folder: Path) -> Section:
    """The section with its figures copied into a folder."""
    copies = tuple(folder / plot.name for plot in section.plots)
    for plot, copy in zip(section.plots, copies, strict=True):
        replace_file(copy, partial(shutil.copyfile, plot))
    return replace(section, plots=copies)


def _row(run: Run) -> dict[str, Any]:
    named = {
        name: getattr(run, name)
        for name in ("dataset", "method", "variant", "epsilon", "seed", "release")
    }
    if run.peer or run.method in REFERENCES:
        named["release"] = NO_RELEASE
    return named | {"accounted_epsilon": run.accounted, "error": run.error} | run.figures()


def _write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, fieldnames=list(dict.fromkeys(name for row in rows for name in row))
        )
        writer.writeheader()
        writer.writerows(rows)


def _tracked(benchmark: Benchmark, results: Results) -> dict[str, float]:
    """Means over repeats, by dataset, method, variant, epsilon and figure."""
    everything: Repeats = {}
    for experiment in benchmark.experiments:
        everything |= repeats_of(benchmark, experiment, results.runs)
    names = [name for _, name, _ in UTILITY] + ["seconds", "cpu_seconds", "memory_mib"]
    names += [
        f"conjunctions.{ways}-way.99.{name}"
        for ways in (1, 2, 3)
        for name in ("average", "largest")
    ]
    names += ["violations.hard.largest_percent", "violations.soft.largest_difference"]
    return {
        f"{s.dataset}/{s.method}/{s.variant}/epsilon {float(s.epsilon):g}/{name}": value.mean
        for s, runs in everything.items()
        for name in names
        if (value := statistic(runs, name)) is not None
    }


@contextmanager
def _watched(label: str) -> Iterator[None]:
    """Say which run is under way."""
    reporter().start(label)
    yield
    reporter().finish(label)
