"""Commands on what a home holds of or about the data: to show it, and to delete what is due."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cloister.figures import count_of
from cloister.flows.cli.console import say, show_json, show_table
from cloister.flows.cli.options import By, Json, command_group, example
from cloister.tasks.home.home import Home

if TYPE_CHECKING:
    from cloister.tasks.release.retention import Holding


def add_retention_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    retention = command_group(
        app, "retention", "Retention: what the home holds about the data, and when it goes."
    )
    retention.command("show", epilog=example("cloister retention show"))(show_holdings)
    retention.command("run", epilog=example("cloister retention run"))(run_retention)


def show_holdings(as_json: Json = False) -> None:
    """Show what the home holds of each release, since when, and when it goes.

    source: DVC's pointer to the data. measures: what was measured on the real rows, and found in
    them. journal: the noisy answers, by which a killed run resumes. models: what rows are drawn
    from. refusals: why data was refused. cloister rules set --keep changes when; what goes now, the
    next cloister retention run deletes.
    """
    from cloister.tasks.release.retention import holdings, leftovers

    home = Home.current()
    stored, left = holdings(home), leftovers(home)
    if as_json:
        show_json({"holdings": [holding.to_json() for holding in stored], "leftovers": left})
        return
    rows = [
        tuple((holding.to_json() | {"goes": "now" if holding.due else holding.goes}).values())
        for holding in stored
    ]
    headings = ("release", "dataset", "state", "kind", "files", "bytes", "since", "goes")
    show_table("Held", headings, rows, _named(left, "of no release, deleted by the next run"))


def run_retention(by: By, as_json: Json = False) -> None:
    """Delete what is no longer needed, by the rules of each account, with an entry for each.

    Review does the same for the release that it moves. What interrupted commands left is deleted
    too.
    """
    from cloister.tasks.release.retention import delete_due, leftovers

    home = Home.current()
    left = leftovers(home)
    deleted = delete_due(home, by)
    if as_json:
        show_json({"deleted": [_deleted(holding) for holding in deleted], "leftovers": left})
    else:
        lines = [f"{holding.release.id}: {holding.kind}, {_size(holding)}" for holding in deleted]
        say("\n".join([*lines, f"deleted: {count_of(len(deleted), 'kind')} of releases"]))
        if left:
            say(_named(left, "of no release, deleted"))


def _deleted(holding: Holding) -> dict[str, object]:
    return {"release": holding.release.id, "kind": holding.kind, "places": list(holding.places)}


def _size(holding: Holding) -> str:
    return f"{count_of(holding.files, 'file')}, {holding.size:,} bytes"


def _named(left: list[Path], what: str) -> str:
    return f"{what}: {', '.join(map(str, left))}" if left else ""
