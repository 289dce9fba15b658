"""The command of the audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloister.flows.cli.options import Json, example

_TRIALS = 1_000
"""Releases, half of each table: halved noise is then five deviations above the claim."""


def add_audit_command(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(epilog=example("cloister audit mixture --spec visits.yaml --trials 2000"))(audit)


def audit(
    method: Annotated[str, typer.Argument(help="Method of synthesis; see cloister methods.")],
    spec: Annotated[
        Path | None, typer.Option(help="A spec whose tables are made up; its data is not read.")
    ] = None,
    epsilon: Annotated[str, typer.Option(help="Epsilon of each release.")] = "1",
    delta: Annotated[str, typer.Option(help="Delta of each release.")] = "1e-6",
    trials: Annotated[int, typer.Option(min=20, help="Releases, half of either table.")] = _TRIALS,
    as_json: Json = False,
) -> None:
    """Attack a method: release two neighbouring tables many times, and tell them apart.

    The audit makes both tables, releases them on the real path and computes how likely each answer
    is with either. What that shows is a bound from below, beside the plan's claim from above; it
    proves nothing private. No data is read and nothing is charged. Trials are kept in
    CLOISTER_HOME/audits: run again, the same command goes on. Leaves with exit code 1 if more is
    shown than is claimed, which happens by chance once in a hundred times at most.
    """
    from cloister.audit.trials import Attack, carry_out
    from cloister.flows.cli.console import progress, show_facts, show_json
    from cloister.models.registry import create, present_name
    from cloister.tasks.home.home import Home

    name = present_name(method)
    attack = Attack.of(name, create(name).of_database, epsilon, delta, spec)
    with progress() as watcher:
        watcher.start("audit")
        result = carry_out(
            attack,
            trials,
            Home.current(),
            lambda done, total: watcher.advance("audit", done, total),
        )
        watcher.finish("audit")
    if as_json:
        show_json(result.to_json())
    else:
        show_facts(f"Audit of {attack}", result.facts())
    if result.alarm:
        raise typer.Exit(1)
