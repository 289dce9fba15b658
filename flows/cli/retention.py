"""Commands on what a home holds of or about the data: what it is, when it goes, and now."""

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
    from. refusals: why data was refused. cloister rules set --keep changes when.
    """
    from cloister.tasks.release.retention import holdings, leftovers

    home = Home.current()
    found, left = holdings(home), leftovers(home)
    if as_json:
        show_json({"holdings": [each.to_json() for each in found], "leftovers": left})
        return
    rows = [tuple(each.to_json().values()) for each in found]
    headings = ("release", "dataset", "state", "kind", "files", "bytes", "since", "goes")
    show_table("Held", headings, rows, _named(left, "of no release, deleted by the next run"))


def run_retention(by: By, as_json: Json = False) -> None:
    """Delete what nothing needs any more, by the rules of each account; each by an entry.

    Review does the same for the release that it moves. What an interrupted command left is deleted
    too.
    """
    from cloister.tasks.release.retention import delete_due, leftovers

    home = Home.current()
    left = leftovers(home)
    deleted = delete_due(home, by)
    if as_json:
        show_json({"deleted": [_deleted(each) for each in deleted], "leftovers": left})
    else:
        lines = [f"{each.release.id}: {each.kind}, {_size(each)}" for each in deleted]
        say("\n".join([*lines, f"deleted: {count_of(len(deleted), 'kind')} of releases"]))
        if left:
            say(_named(left, "of no release, deleted"))


def _deleted(each: Holding) -> dict[str, object]:
    return {"release": each.release.id, "kind": each.kind, "places": list(each.places)}


def _size(each: Holding) -> str:
    return f"{count_of(each.files, 'file')}, {each.size:,} bytes"


def _named(left: list[Path], what: str) -> str:
    return f"{what}: {', '.join(map(str, left))}" if left else ""
