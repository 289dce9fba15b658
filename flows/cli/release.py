"""Commands that make synthetic tables: demo, release, plan, sample, methods."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloister.flows.cli.options import DELIVERY, Json, Of, Released, Until, command_of, example
from cloister.schema.sources.files_and_urls import is_url
from cloister.tasks.home.identity import identity
from cloister.tasks.home.process import reporting_to
from cloister.tasks.requests import MOST_ROWS
from cloister.tasks.requests.release_request import ReleaseRequest

if TYPE_CHECKING:
    from cloister.flows.release import Finished, Outcome
    from cloister.tasks.home.home import Home


def add_release_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog=example("cloister demo"))(demo)
    app.command(
        "release",
        epilog=example(
            "cloister release data/specs/demo.yaml --data data/raw/demo.csv --epsilon 1 --out out/",
            "cloister release shop.yaml --out postgresql://officer@localhost/synthetic",
        ),
    )(release_table)
    app.command("plan", epilog=example("cloister plan data/specs/demo.yaml --epsilon 0.5"))(
        plan_release
    )
    app.command(
        "sample",
        epilog=example(
            "cloister sample r-0123456789 --rows 1000 --out more.parquet",
            "cloister sample r-0123456789 --rows 1000 --out doctors.csv --where "
            "education=Doctorate",
        ),
    )(sample_model)
    app.command(
        "answer",
        epilog=example(
            'cloister answer r-0123456789 "mean(age) by sex"',
            'cloister answer release/synthetic.parquet "count() where age in 30..49"',
            "cloister answer r-0123456789 \"share(income = '>50K') by sex where not sector in "
            '(state, church)"',
        ),
    )(answer_release)
    app.command(epilog=example("cloister methods"))(methods)


def demo(as_json: Json = False) -> None:
    """Release the built-in demo data, a fictional civic registry, end to end."""
    from cloister.tasks.data.tables import demo_data, demo_spec
    from cloister.tasks.home.home import Home

    home = Home.current()
    request = ReleaseRequest(spec=demo_spec(), data=demo_data(home), by=identity())
    _release(request, home, as_json)


@command_of()
def release_table(request: ReleaseRequest, as_json: Json = False) -> None:
    """Release a synthetic table: plan, charge, train, draw, measure, certify, register.

    Run again after a crash, the same command resumes where it stopped, or finds the finished
    release, and charges nothing twice.
    """
    from cloister.tasks.home.home import Home

    _release(request, Home.current(), as_json)


@command_of(*DELIVERY)
def plan_release(
    request: ReleaseRequest,
    until: Annotated[
        Until | None,
        typer.Option(
            help="Find the least epsilon at which there is a plan, or at which every functional "
            "dependency is learnt.",
        ),
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="Show long lists whole.")] = False,
    as_json: Json = False,
) -> None:
    """Forecast a release: steps, what each would spend, time and memory.

    Touches no data and costs nothing.
    """
    from cloister.flows.cli.plans import show_plan
    from cloister.models.quality import EPSILONS
    from cloister.tasks.requests.plan import raise_budget
    from cloister.tasks.requests.resolved import resolve

    if until:
        greatest = request.model_copy(update={"epsilon": str(EPSILONS[-1])})
        show_plan(raise_budget(resolve(greatest), until.value), as_json, whole)
    else:
        show_plan(resolve(request), as_json, whole)


def sample_model(
    release: Released,
    rows: Annotated[int, typer.Option(help="Rows to draw.", min=1, max=MOST_ROWS)],
    out: Annotated[
        str,
        typer.Option(
            help="The file to write: .parquet or .csv; of several tables a new folder; or the URL "
            "of a database."
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="A value that all rows have; repeat for more."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed, to draw the same rows again.", min=0)
    ] = None,
    binary: Annotated[
        bool,
        typer.Option(
            "--binary",
            help="The binary columns of a model that has them, in which no constraint holds.",
        ),
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Write several tables as CSV, not Parquet.")
    ] = False,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="local:N|tls://HOST:PORT",
            help="Processes that draw one table to a file; the rows are the same.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw more rows from the model of an approved release, at no cost.

    Of several tables another database is drawn, with so many rows in the table of the privacy unit.
    Run again, the command resumes an interrupted draw of one table to a file.
    """
    from cloister.flows.sampling import Draw, sample_release
    from cloister.tasks.home.home import Home

    folder, database = (Path(), out) if is_url(out) else (Path(out), None)
    draw = Draw(release, rows, folder, tuple(where or ()), seed, binary, csv, database, workers)
    sample_release(Home.current(), draw, as_json)


def answer_release(
    release: Released,
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION",
            help="count(), share(...), mean(...), median(...), quantile(..., 0.9), table(...), "
            "linear(Y ~ A + B) or logistic(Y = yes ~ A + B), then by COLUMN, ... and where "
            "CONDITION if wanted: age >= 65, age in 30..49, region not in (north, east), reason is "
            "missing, not ..., joined by and.",
        ),
    ],
    of: Annotated[
        Of,
        typer.Option(
            help="What the figures are of: the population that the rows are a sample of, or the "
            "table itself."
        ),
    ] = Of.population,
    confidence: Annotated[
        float,
        typer.Option(help="Share of intervals that hold the true figure.", min=0.5, max=0.999),
    ] = 0.95,
    as_json: Json = False,
) -> None:
    """Answer a question from the released numbers of an approved release, at no cost.

    Each figure has an interval, and what the release does not tell is said.
    """
    from cloister.flows.cli.console import say, show_json, show_table
    from cloister.flows.sampling import answer_of, approved_model
    from cloister.tasks.home.home import Home

    answer = answer_of(approved_model(Home.current(), release), question, of.value, confidence)
    if as_json:
        show_json({"release": release, "epsilon": 0, **answer.to_json()})
        return
    rows = answer.records()
    empty, figures = ("", None, 0), ("estimate", "low", "high")
    shown = [n for n in rows[0] if n in figures or any(row[n] not in empty for row in rows)]
    cells = [["-" if row[name] is None else row[name] for name in shown] for row in rows]
    show_table(question, shown, cells)
    for note in answer.notes:
        say(note)


def methods(as_json: Json = False) -> None:
    """List the methods of synthesis."""
    from cloister.flows.cli.console import show_json, show_table
    from cloister.models.registry import create, offered

    facts = {name: create(name) for name in offered()}
    ways = {name: fact.samplings if fact.weighs_soft else () for name, fact in facts.items()}
    if as_json:
        show_json(
            [
                {"name": name, "summary": fact.summary, "soft_constraints": list(ways[name])}
                for name, fact in facts.items()
            ]
        )
    else:
        show_table(
            "Methods",
            ("method", "what it does", "under soft constraints"),
            [
                (name, fact.summary, " or ".join(ways[name]) or "not kept")
                for name, fact in facts.items()
            ],
        )


def _release(request: ReleaseRequest, home: Home, as_json: bool) -> None:
    from cloister.flows.cli.console import progress

    with ExitStack() as delivery:
        with progress() as watcher, reporting_to(watcher):
            from cloister.flows.cli.reports import show_outcome
            from cloister.tasks.release.publish import confirm_delivery

            delivery.enter_context(confirm_delivery(home, request.by))
            outcome = _run(request, home)
        show_outcome(outcome, as_json)


def run_release(request: ReleaseRequest, home: Home) -> Outcome | Finished:
    """Check what can be checked before an orchestrator is started, then run the flow."""
    from cloister.flows.cli.console import progress

    with progress() as watcher, reporting_to(watcher):
        return _run(request, home)


def _run(request: ReleaseRequest, home: Home) -> Outcome | Finished:
    from cloister.flows.cli.console import warn
    from cloister.flows.cli.plans import budget_notes
    from cloister.tasks.release.preflight import require_usable
    from cloister.tasks.requests.plan import plan_of, require_forecast_memory
    from cloister.tasks.requests.resolved import public_context_of, resolve
    from cloister.tasks.stores.prefect_server import serving

    resolved = resolve(request)
    for note in budget_notes(resolved):
        warn(note)
    require_usable(resolved, public_context_of(resolved), home)
    require_forecast_memory(resolved, plan_of(resolved))
    home.prepare()
    with serving(home):
        from cloister.flows.release import release as flow

        return flow(request)
