"""The commands that make a release a recurring job, and run what is due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloister.errors import InputError
from cloister.figures import count_of
from cloister.flows.cli.options import Json, command_of, example
from cloister.tasks.requests.release_request import ReleaseRequest

if TYPE_CHECKING:
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.budgets import Allowance
    from cloister.tasks.stores.prefect_deployment import Recurring

_SHOWN = 3
"""First runs that are listed: enough to see the rhythm of a schedule."""

Unauthenticated = Annotated[
    bool,
    typer.Option(
        "--allow-unauthenticated",
        help=(
            "Accept a server without a password: any user of this machine may then delay or delete "
            "runs."
        ),
    ),
]


def add_deploy_commands(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(
        epilog=example(
            'cloister deploy data/specs/demo.yaml --data data/raw/demo.csv --cron "0 3 1 * *"',
            'cloister deploy stays.yaml --block previous --cron "0 3 2 * *"',
        )
    )(deploy)
    app.command("serve", epilog=example("cloister serve"))(serve_releases)


@command_of("seed_sampling")
def deploy(
    request: ReleaseRequest,
    cron: Annotated[str, typer.Option(help="When: minute, hour, day, month, weekday.")],
    timezone: Annotated[str, typer.Option(help="The time zone of the schedule.")] = "UTC",
    catch_up: Annotated[
        int,
        typer.Option(
            help="How many runs are made up for that were missed while the server or cloister "
            "serve was down: the last ones.",
            min=1,
        ),
    ] = 1,
    publish_on_approval: Annotated[
        bool,
        typer.Option("--publish-on-approval", help="Publish a release once it is approved."),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Replace a deployment of the same name that another home made on the server.",
        ),
    ] = False,
    allow_unauthenticated: Unauthenticated = False,
    as_json: Json = False,
) -> None:
    """Make a release a recurring job on the Prefect server at PREFECT_API_URL.

    Each run is a release of its own, with its own charge; the ledger refuses those that the budget
    does not admit. With --out, the tables of the run before are replaced in a database. Run again,
    the command replaces the schedule of the same dataset. cloister serve runs what is due.
    """
    from cloister.tasks.home.home import Home

    _require_repeatable(request)
    terms = {"catch_up": catch_up, "publish": publish_on_approval}
    server = {"authenticated": not allow_unauthenticated, "take_over": take_over}
    done = _deployed(request, (cron, timezone), Home.current(), terms, **server)
    _show(done, as_json)


def serve_releases(allow_unauthenticated: Unauthenticated = False, as_json: Json = False) -> None:
    """Run the registered releases of this home when the Prefect server says that they are due.

    The server is that of PREFECT_API_URL. Runs until it is ended; one release at a time. A run that
    cloister deploy did not register here is refused. Begins with a list of what is registered,
    with its schedule and next run.
    """
    from cloister.flows.cli.console import say, show_json, show_table
    from cloister.flows.release import release as flow
    from cloister.flows.serving import serve
    from cloister.tasks.home.home import Home
    from cloister.tasks.stores.prefect_deployment import require_server
    from cloister.tasks.stores.prefect_registration import registrations

    server, home = require_server(authenticated=not allow_unauthenticated), Home.current()
    now = datetime.now(UTC)
    schedules = [
        {
            "release": registration.name,
            "schedule": str(registration.schedule),
            "next": registration.next_run(now),
        }
        for registration in registrations(home)
    ]
    if as_json:
        show_json({"server": server, "recurring": schedules})
    else:
        say(f"Serving the recurring releases of this home; {server} says when they are due.")
        headings = ("release", "schedule", "next run")
        show_table(
            "Recurring releases",
            headings,
            [tuple(registration.values()) for registration in schedules],
        )
    serve(flow, home)


def _require_repeatable(request: ReleaseRequest) -> None:
    """Check that each run has a place, which the one before does not take.

    Raises:
        InputError: it has none.
    """
    if request.out is not None and not (request.database and request.replace):
        raise InputError(
            "--out: a second run would find its place taken; give the URL of a database, with "
            "--replace, or leave it out"
        )


@dataclass(frozen=True)
class Deployed:
    """A recurring release that a server holds, and what its budget admits."""

    recurring: Recurring
    allowance: Allowance
    server: str
    id: str
    now: datetime
    spec_digest: str


def _deployed(
    wanted: ReleaseRequest,
    when: tuple[str, str],
    home: Home,
    terms: dict[str, Any],
    *,
    authenticated: bool,
    take_over: bool,
) -> Deployed:
    """Check what needs no data, then register the release on the server and in the home."""
    from cloister.schema.blocks import PREVIOUS
    from cloister.tasks.ledger.budgets import allowance_of
    from cloister.tasks.release.preflight import require_usable
    from cloister.tasks.requests.plan import plan_of
    from cloister.tasks.requests.resolved import public_context_of, resolve
    from cloister.tasks.stores import prefect_deployment, prefect_registration

    now = datetime.now(UTC)
    schedule = prefect_registration.ReleaseSchedule.of(*when, now)
    request = wanted.recurring()
    resolved = resolve(request, now)
    context = public_context_of(resolved)
    require_usable(resolved, context, home)
    moving = request.block == PREVIOUS
    allowance = allowance_of(resolved, context, plan_of(resolved), home, now, moving=moving)
    allowance.require_one()
    server = prefect_deployment.require_server(authenticated=authenticated)
    home.prepare()
    from cloister.flows.release import release as flow

    recurring = prefect_deployment.Recurring(context.spec.name, request.parameters(), schedule)
    registered = prefect_registration.registration_of(home, recurring.name)
    deployment = str(
        prefect_deployment.register_deployment(flow, recurring, registered, take_over=take_over)
    )
    settings = (str(Path.cwd()), prefect_registration.settings_digest(home), now.isoformat())
    terms |= {"spec_digest": resolved.digest, "account": context.dataset}
    registration = prefect_registration.Registration(
        recurring.name, deployment, recurring.parameters, schedule, *settings, **terms
    )
    registration.write(home)
    return Deployed(recurring, allowance, server, deployment, now, resolved.digest)


def _show(done: Deployed, as_json: bool) -> None:
    from cloister.flows.cli.console import say, show_facts, show_json, show_table

    schedule = done.recurring.schedule
    content = {
        "deployment": f"release/{done.recurring.name}",
        "id": done.id,
        "server": done.server,
        "runner": "cloister serve",
        "schedule": str(schedule),
        "spec": f"SHA-256 {done.spec_digest[:16]}...: runs of a changed spec are refused",
        "budget": _budget(done.allowance),
    }
    runs = _first_runs(done)
    surplus = done.allowance.exceeded_by(schedule.runs(done.now), done.now)
    if as_json:
        show_json(content | _figures(done, runs, surplus))
        return
    show_facts("Recurring release", content)
    show_table(
        "First runs", ("time", "the budget admits it"), [tuple(run.values()) for run in runs]
    )
    if surplus:
        say(
            "The schedule runs more often than the budget admits: the ledger will refuse the "
            "surplus runs, which then end as Declined and spend nothing."
        )
    say(
        "Runs start while cloister serve is up: run it in the background, or as a service, with "
        "the same settings."
    )


def _figures(done: Deployed, runs: list[dict[str, Any]], surplus: bool) -> dict[str, Any]:
    """What programs get beside the words."""
    allowance = done.allowance
    admits = {
        "per": allowance.budget.period.value,
        "whole": allowance.whole,
        "left": allowance.left,
    }
    parameters = done.recurring.parameters
    return {"admits": admits, "first_runs": runs, "surplus": surplus, "parameters": parameters}


def _first_runs(done: Deployed) -> list[dict[str, Any]]:
    foreseen = done.allowance.foreseen(done.recurring.schedule.runs(done.now))
    return [
        {"time": run.isoformat(timespec="minutes"), "admitted": fits}
        for run, fits in islice(foreseen, _SHOWN)
    ]


def _budget(allowance: Allowance) -> str:
    from cloister.privacy.exact import decimal, decimal_below

    budget, price = allowance.budget, allowance.price
    return (
        f"epsilon {decimal_below(budget.epsilon)} at delta {decimal_below(budget.delta)} per "
        f"{budget.period.value}: {count_of(allowance.whole, 'release')} of epsilon "
        f"{decimal(price.epsilon)}, {allowance.left} of them left in {allowance.window}"
    )
