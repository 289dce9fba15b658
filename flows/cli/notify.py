"""Commands on who is notified of releases: webhooks and mail."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloister.flows.cli.console import say, show_json, show_table, warn
from cloister.flows.cli.options import Json, command_group, example
from cloister.tasks.home.home import Home

if TYPE_CHECKING:
    from cloister.tasks.ledger.notifications import Subscriber, Waiting

Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="https://HOST/PATH, or mailto:NAME@HOST.")
]


def add_notify_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    notify = command_group(app, "notify", "Notifications: who is told of releases, and how.")
    notify.command(
        "add",
        epilog=example(
            "cloister notify add https://hooks.example.org/cloister --secret-file hook.secret",
            "cloister notify add mailto:officer@example.org --smtp smtps://cloister@example.org "
            "--secret-file mail.password --events candidate,declined",
        ),
    )(add_subscriber)
    notify.command("list", epilog=example("cloister notify list"))(list_subscribers)
    notify.command(
        "remove", epilog=example("cloister notify remove https://hooks.example.org/cloister")
    )(remove_subscriber)
    notify.command(
        "test", epilog=example("cloister notify test https://hooks.example.org/cloister")
    )(try_subscriber)
    notify.command("send", epilog=example("cloister notify send"))(send_events)


def add_subscriber(
    address: Address,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A webhook's secret (whsec_...), made if there is no such file; or the password "
            "at the mail server. Mode 0600.",
        ),
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(help="Kinds of events, separated by commas; by default all."),
    ] = None,
    smtp: Annotated[
        str, typer.Option(metavar="URL", help="Of mail: smtps://USER@HOST, or smtp://HOST:PORT.")
    ] = "",
    sender: Annotated[
        str, typer.Option(metavar="NAME@HOST", help="Of mail: the sender; by default USER.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Tell a webhook, or people by mail, of what happens to releases from now on.

    candidate, approved, published, rejected and withdrawn are states of a release; declined is a
    request that its budget does not hold. A secret is copied into the home.
    """
    from cloister.privacy.ledger.outbox import EVENTS
    from cloister.tasks.ledger.notifications import Subscriber, read_secret, subscribe

    kinds = tuple(events.split(",")) if events is not None else EVENTS
    secret = read_secret(secret_file, webhook=not address.startswith("mailto:"))
    subscribe(Home.current(), Subscriber(address, kinds, secret, smtp, sender))
    if as_json:
        show_json({"address": address, "events": kinds})
    else:
        say(f"{address} is told of: {', '.join(kinds)}")


def list_subscribers(as_json: Json = False) -> None:
    """List who is told, what waits to be sent, and what was tried too often."""
    from cloister.tasks.ledger.notifications import subscribers

    known = subscribers(Home.current())
    if as_json:
        show_json([_facts(subscriber) for subscriber in known])
        return
    rows = [
        (
            subscriber.address,
            ", ".join(subscriber.events),
            len(subscriber.waiting),
            len(subscriber.dead),
        )
        for subscriber in known
    ]
    show_table("Told of releases", ("address", "events", "waiting", "given up"), rows)
    for subscriber in known:
        for heading, events in (("waiting", subscriber.waiting), ("given up", subscriber.dead)):
            if events:
                lines = [tuple(_waits(one).values()) for one in events]
                columns = ("id", "event", "release", "tries", "next", "problem")
                show_table(f"{subscriber.address}: {heading}", columns, lines)


def remove_subscriber(address: Address, as_json: Json = False) -> None:
    """Tell a webhook, or people, nothing more."""
    from cloister.tasks.ledger.notifications import unsubscribe

    unsubscribe(Home.current(), address)
    if as_json:
        show_json({"removed": address})
    else:
        say(f"{address} is told nothing more")


def try_subscriber(address: Address, as_json: Json = False) -> None:
    """Send an event of the kind test now; an error says why it was not taken."""
    from cloister.tasks.ledger.notifications import find_subscriber, made_up_event

    find_subscriber(Home.current(), address).send([made_up_event()])
    if as_json:
        show_json({"told": address})
    else:
        say(f"{address} accepted a test event")


def send_events(
    dead: Annotated[
        bool, typer.Option("--dead", help="Also retry events that were given up.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Send what is due, as cloister serve does after each look at its schedule."""
    from cloister.tasks.ledger.notifications import send_due

    problems = send_due(Home.current(), dead=dead)
    if as_json:
        show_json({"problems": problems})
        return
    for problem in problems:
        warn(problem)
    say("sent what was due" if not problems else "the rest is sent by a later cloister notify send")


def _facts(subscriber: Subscriber) -> dict[str, object]:
    return {
        "address": subscriber.address,
        "events": subscriber.events,
        "waiting": [_waits(one) for one in subscriber.waiting],
        "given_up": [_waits(one) for one in subscriber.dead],
    }


def _waits(waiting: Waiting) -> dict[str, object]:
    due = datetime.fromtimestamp(waiting.due, UTC).isoformat(timespec="seconds")
    return {
        "id": waiting.event.id,
        "event": waiting.event.kind,
        "release": waiting.event.release,
        "tries": waiting.tries,
        "next": due if waiting.due else "now",
        "problem": waiting.problem,
    }
