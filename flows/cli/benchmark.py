"""The command of benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloister.flows.cli.options import Json, example
from cloister.tasks.home.identity import identity

if TYPE_CHECKING:
    from cloister.benchmarks.flow import Benchmarked


_PROGRAM = Path(__file__).parents[2] / "benchmarks"


def add_benchmark_command(app: typer.Typer) -> None:
    """Add this command to the command line of a checkout.

    An installed package brings no benchmarks.
    """
    if _PROGRAM.is_dir():
        app.command(
            epilog=example(
                "cloister benchmark benchmarks/quick.yaml --markdown docs/benchmarks/quick.md"
            )
        )(benchmark)


def benchmark(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The benchmark, a YAML file.")],
    markdown: Annotated[
        Path | None, typer.Option(help="A document to write the tables into, between its markers.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPERIMENT", help="Run this experiment alone; may be given several times."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare methods: run every combination of a configuration, measure, tabulate, draw.

    Each run is an ordinary release, charged to the benchmark's own ledger under
    CLOISTER_HOME/benchmarks, or that of a peer: another library in an environment of its own under
    CLOISTER_HOME/environments, for public tables only. Run again, the same command keeps what is
    finished. Figures are internal; --markdown wants data sets that are declared public, and with
    --only it leaves the tables of other experiments as they are. Leaves with exit code 1 if a
    release failed; a peer that fails or takes too long is a finding.
    """
    sys.path.insert(0, str(_PROGRAM.parent))  # opacus installs a package of the same name
    from cloister.benchmarks.config import load_benchmark, require_public
    from cloister.benchmarks.pages.markdown import require_markers
    from cloister.benchmarks.preflight import require_usable
    from cloister.tasks.home.home import Home

    declared = load_benchmark(config).only(only or ())
    require_usable(declared)
    if markdown:
        require_public(declared)
        require_markers(markdown, declared.name)
    Home.current().prepare()
    done = _run(config, markdown, only or [])
    _show(done, as_json)
    if done.results.failed:
        raise typer.Exit(1)


def _run(config: Path, markdown: Path | None, only: list[str]) -> Benchmarked:
    from cloister.benchmarks.flow import benchmark as flow
    from cloister.flows.cli.console import progress
    from cloister.tasks.home.home import Home
    from cloister.tasks.home.process import reporting_to
    from cloister.tasks.stores.prefect_server import serving

    with progress() as watcher, reporting_to(watcher), serving(Home.current()):
        return flow(str(config), str(markdown) if markdown else None, identity(), only)


def _show(done: Benchmarked, as_json: bool) -> None:
    from cloister.flows.cli.console import say, show_facts, show_json, show_table
    from cloister.flows.cli.reports import INTERNAL_NOTE

    results = done.results
    summary = {
        "runs": len(results.runs),
        "done before": done.resumed,
        "failed": len(results.failed),
        "peers failed": sum(run.finding for run in results.runs),
        "files": results.folder,
        "tracking run": done.tracking_run,
    }
    if as_json:
        show_json(summary | {"results": [run.to_json() for run in results.runs]})
        return
    for section in results.sections:
        for shown in section.tables:
            show_table(
                f"{section.experiment.title}: {shown.title}",
                shown.headings,
                shown.rows,
                INTERNAL_NOTE,
            )
        for failure in section.failures:
            say(f"Failed: {failure}")
    show_facts("Benchmark", summary)
