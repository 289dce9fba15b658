"""The benchmark flow: run every combination of a configuration, then summarise the results.

    grant        the benchmark's own ledger is granted what the pending releases will cost
    run          one release, or one run of a peer in its own environment, and its evaluation, each
                 in a process of its own; or reference answers; skipped if it was done before: by
                 this code, or a peer's run by its own program
    summarise    results.json, results.csv, figures
    track        one MLflow run with all of it
    document     the tables, between the markers of a Markdown file

A killed command can be run again: finished runs are kept, and an unfinished release is resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefect import flow

from cloister.benchmarks import releases, steps
from cloister.benchmarks.config import Benchmark, Combination, load_benchmark
from cloister.benchmarks.measures import references
from cloister.benchmarks.peer_runs import peer_steps
from cloister.benchmarks.runs import Run, home_of
from cloister.benchmarks.steps import Results
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import flow_version


@dataclass(frozen=True)
class Benchmarked:
    """Results of a benchmark; ``resumed`` counts the runs of an earlier call."""

    results: Results
    resumed: int
    tracking_run: str


@flow(
    name="benchmark",
    flow_run_name="benchmark {config}",
    version=flow_version(),
    retries=0,
    persist_result=False,
    log_prints=False,
)
def benchmark(
    config: str,
    markdown: str | None = None,
    by: str = "prefect",
    only: Sequence[str] = (),
) -> Benchmarked:
    """Run a benchmark, or ``only`` the experiments of these names.

    Paths are those of the machine that runs the flow, relative to its working directory.
    """
    declared, home = load_benchmark(Path(config)).only(only), Home.current()
    bench_home = home_of(declared, home)
    runs, resumed = _runs(declared, bench_home, home, by)
    results = steps.summarise(declared, runs, bench_home)
    tracking_run = steps.track(declared, results, home)
    if markdown:
        write = steps.document_some if only else steps.document
        write(declared, results, command_of(config, markdown, only), Path(markdown))
    return Benchmarked(results, resumed, tracking_run)


def command_of(config: str, markdown: str, only: Sequence[str]) -> str:
    """The command that makes a document, or a part of it, again."""
    chosen = "".join(f" --only {name}" for name in only)
    return f"cloister benchmark {config}{chosen} --markdown {markdown}"


def _runs(declared: Benchmark, bench_home: Home, home: Home, by: str) -> tuple[list[Run], int]:
    """All runs, and how many of them were done before."""
    bench_home.prepare()
    combinations = declared.all_combinations()
    done = {c.label: run for c in combinations if (run := _finished(c, bench_home, home))}
    pending = [combination for combination in combinations if combination.label not in done]
    charged = [combination for combination in pending if combination.charged]
    if charged:
        steps.grant(declared, charged, bench_home, by)
    runs = done | {
        combination.label: steps.run(combination, bench_home, home) for combination in pending
    }
    return [runs[combination.label] for combination in combinations], len(done)


def _finished(combination: Combination, bench_home: Home, home: Home) -> Run | None:
    if combination.peer:
        return peer_steps.finished_run(combination, home)
    finished = references.finished_run if combination.reference else releases.finished_run
    return finished(combination, bench_home)
