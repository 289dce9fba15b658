"""The command of the audit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloister.flows.cli.options import Json, example

if TYPE_CHECKING:
    from cloister.audit.kept import Effort
    from cloister.audit.trials import Attack, Audited

_TRIALS = 1_000
"""Releases, half of each table: halved noise is then five deviations above the claim."""

_HEADINGS = (
    *("method", "unit", "relation", "epsilon", "the unit", "releases"),
    *("mu claimed", "mu shown", "at least", "at least, exactly", "nearer", "chance", "not read"),
)


def add_audit_command(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(epilog=example("cloister audit mixture --spec visits.yaml --trials 2000"))(audit)


def audit(
    method: Annotated[
        str | None, typer.Argument(help="Method of synthesis; without it, attacks on each.")
    ] = None,
    spec: Annotated[
        Path | None, typer.Option(help="A spec whose tables are made up; its data is not read.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Epsilon of each release; 1 if not given.")
    ] = None,
    delta: Annotated[
        str | None, typer.Option(help="Delta of each release; 1e-6 if not given.")
    ] = None,
    trials: Annotated[int, typer.Option(min=20, help="Releases, half of either table.")] = _TRIALS,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Stop after about so long, with fewer releases.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="A document to write the table into, between its markers.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack a method: release two neighbouring tables many times, and tell them apart.

    The audit makes both tables, releases them on the real path and computes how likely each answer
    is with either. What that shows is a bound from below, beside the plan's claim from above; it
    proves nothing private. No data is read and nothing is charged. Without METHOD, each registered
    method is attacked at three budgets, under units and relations that rotate. Trials are kept in
    CLOISTER_HOME/audits: run again, the same command goes on. Leaves with exit code 1 if more is
    shown than is claimed, which happens by chance once in a hundred times at most, for all attacks
    together.
    """
    from cloister.audit.design import design
    from cloister.audit.kept import Effort
    from cloister.audit.trials import Attack, alarmed
    from cloister.errors import InputError
    from cloister.models.registry import create, present_name

    if method is None:
        if spec or epsilon or delta:
            raise InputError(
                "the attacks on all methods have tables and budgets of their own; name a METHOD "
                "beside --spec, --epsilon or --delta, or leave these out"
            )
        attacks = design()
    else:
        name = present_name(method)
        several = create(name).of_database
        attacks = [Attack.of(name, several, epsilon or "1", delta or "1e-6", spec)]
    results = _carried_out(attacks, Effort.within(trials, minutes))
    _show(results, as_json)
    if markdown:
        _write(markdown, results, f"cloister audit --trials {trials} --markdown {markdown}")
    if alarmed(results):
        raise typer.Exit(1)


def _carried_out(attacks: Sequence[Attack], effort: Effort) -> list[Audited]:
    from cloister.audit.trials import carry_out
    from cloister.flows.cli.console import progress
    from cloister.tasks.home.home import Home

    with progress() as watcher:

        def advance(done: int, total: int) -> None:
            watcher.advance("audit", done, total)

        watcher.start("audit")
        results = list(carry_out(attacks, effort, Home.current(), advance))
        watcher.finish("audit")
    return results


def _show(results: Sequence[Audited], as_json: bool) -> None:
    from cloister.flows.cli.console import show_facts, show_json, show_table

    if len(results) == 1:
        (result,) = results
        if as_json:
            show_json(result.to_json())
        else:
            show_facts(f"Audit of {result.attack}", result.facts())
    elif as_json:
        show_json([result.to_json() for result in results])
    else:
        show_table("Audit", _HEADINGS, [_row(result) for result in results])


def _row(result: Audited) -> list[Any]:
    attack, shown = result.attack, result.shown
    factors = attack.method, attack.unit, str(attack.relation), attack.epsilon, attack.kind
    bounds = shown.mu, shown.mu_low, shown.mu_free
    figures = result.claimed, *bounds, shown.nearer, shown.p_value
    return [*factors, shown.trials, *figures, shown.unread]


def _write(document: Path, results: Sequence[Audited], command: str) -> None:
    from cloister.audit.trials import LEVEL, alarmed
    from cloister.benchmarks.pages.markdown import insert
    from cloister.figures import figure
    from cloister.tasks.home.process import code_version

    raised = [str(result.attack) for result in alarmed(results)]
    rows = [
        [figure(cell, 3) if isinstance(cell, float) else str(cell) for cell in _row(result)]
        for result in results
    ]
    lines = [_HEADINGS, ["---"] * len(_HEADINGS), *rows]
    outcome = f"Alarms: {'; '.join(raised)}." if raised else "No alarm."
    minutes = sum(result.shown.seconds for result in results) / 60
    text = (
        f"`{command}`, Cloister {code_version()}, {dt.datetime.now(dt.UTC).date()}: {len(results)} "
        f"attacks, {sum(result.shown.trials for result in results):,} releases in {minutes:.0f} "
        f"minutes of one core. {outcome} A wrong alarm, in any of them, has a chance of {LEVEL:g} "
        "at most (Holm).\n\n"
    )
    insert(document, "audit", text + "\n".join(f"| {' | '.join(line)} |" for line in lines))
