"""The commands of the audit: of answers, and of synthetic rows alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cloister.errors import InputError
from cloister.flows.cli.options import Json, example
from cloister.tasks.home.home import Home

if TYPE_CHECKING:
    from cloister.audit.rows import RowsShown
    from cloister.audit.trials import Audited
    from cloister.benchmarks.pages.audit_plots import Panel
    from cloister.models.protocol import Progress

_ResultT = TypeVar("_ResultT")

_TRIALS = 1_000
"""Releases, half of each table: halved noise is then five deviations above the claim."""

_HEADINGS = (
    *("method", "unit", "relation", "epsilon", "the unit", "releases"),
    *("mu claimed", "mu shown", "at least", "at least, exactly", "nearer", "chance", "not read"),
)

_PANELS = 6
"""Methods whose trade-offs are drawn at most."""

_DRAWN = 40
"""Releases of an attack whose trade-off is drawn: fewer show no more than a guess."""

_PLOT = "images/audit-trade-offs.png"
"""Where the trade-offs lie, beside a document."""

_RELEASES = 100
"""Releases of each method, of 40 targets: their area is then known to 0.02."""

_ROW_HEADINGS = (
    *("method", "unit", "releases", "units", "rows drawn", "targets by distance"),
    *("targets by cells", "targets by training", "epsilon at least", "ordinary units"),
    *("attributes", "rebuilt", "nearer", "singled out"),
)

SpecOption = Annotated[
    Path | None, typer.Option(help="A spec whose tables are made up; its data is not read.")
]
Epsilon = Annotated[str | None, typer.Option(help="Epsilon of each release; 1 if not given.")]
Delta = Annotated[str | None, typer.Option(help="Delta of each release; 1e-6 if not given.")]
Minutes = Annotated[
    float | None, typer.Option(min=0.1, help="Stop after about so long, with fewer releases.")
]
Document = Annotated[
    Path | None, typer.Option(help="A document to write the table into, between its markers.")
]


class MadeUnit(StrEnum):
    """The unit of tables that an attack makes up."""

    row = "row"
    person = "person"
    tables = "tables"


def add_audit_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog=example("cloister audit mixture --spec visits.yaml --trials 2000"))(audit)
    app.command(
        "attack",
        epilog=example(
            "cloister attack mixture independent --epsilon 4",
            "cloister attack mixture --unit person --epsilon 4",
        ),
    )(attack_methods)


def audit(
    method: Annotated[
        str | None, typer.Argument(help="Method of synthesis; without it, attacks on each.")
    ] = None,
    spec: SpecOption = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    trials: Annotated[int, typer.Option(min=20, help="Releases, half of either table.")] = _TRIALS,
    minutes: Minutes = None,
    markdown: Document = None,
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
    from cloister.audit.trials import Attack, alarmed, carry_out
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
    effort, home = Effort.within(trials, minutes), Home.current()
    results = _watched("audit", lambda advance: carry_out(attacks, effort, home, advance))
    _show(results, as_json)
    if markdown:
        named = {"spec": spec, "epsilon": epsilon, "delta": delta, "trials": trials}
        options = [f"--{name} {value}" for name, value in named.items() if value is not None]
        words = ["cloister audit", *([method] if method else []), *options]
        _write(markdown, results, f"{' '.join(words)} --markdown {markdown}")
    if alarmed(results):
        raise typer.Exit(1)


def _watched(step: str, carry_out: Callable[[Progress], Iterable[_ResultT]]) -> list[_ResultT]:
    """The results of attacks, whose progress the terminal shows."""
    from cloister.flows.cli.console import progress

    with progress() as watcher:
        watcher.start(step)
        results = list(carry_out(partial(watcher.advance, step)))
        watcher.finish(step)
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
    from cloister.benchmarks.pages.audit_plots import draw_trade_offs
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
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    if panels := [_panel(result) for result in _drawn(results)]:
        draw_trade_offs(panels, document.parent / _PLOT)
        table += f"\n\n![trade-offs, claimed and shown]({_PLOT})"
    insert(document, "audit", text + table)


def _drawn(results: Sequence[Audited]) -> list[Audited]:
    """Of each method the attack that claims the least privacy; those of most releases."""
    worst: dict[str, Audited] = {}
    for result in sorted(results, key=lambda result: result.claimed):
        if result.shown.trials >= _DRAWN:
            worst[result.attack.method] = result
    return sorted(worst.values(), key=lambda result: -result.shown.trials)[:_PANELS]


def _panel(result: Audited) -> Panel:
    from cloister.benchmarks.pages.audit_plots import Panel

    curve = result.trade_off
    title = f"{result.attack.method} ({result.shown.trials})"
    return Panel(title, curve.alarms, curve.claimed, curve.shown)


def attack_methods(
    methods: Annotated[list[str], typer.Argument(metavar="METHOD...", help="Methods to attack.")],
    spec: SpecOption = None,
    unit: Annotated[
        MadeUnit | None,
        typer.Option(help="Whom made-up tables are of; a row, or a row with all that refer to it."),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    releases: Annotated[int, typer.Option(min=10, help="Releases of each method.")] = _RELEASES,
    minutes: Minutes = None,
    markdown: Document = None,
    as_json: Json = False,
) -> None:
    """Attack synthetic rows alone, as somebody would who sees a release and knows similar rows.

    Tells who was in the data, guesses attributes, looks for units that follow those of the data,
    and singles them out, beside the same on the data themselves and on fresh units, where there is
    all and nothing to find. A unit is a row, a person, or a row with all that refer to it; one of
    several rows is known by their number and the ends of their attributes. Reported, not judged:
    that an attack fails proves nothing, and cloister audit, which knows all answers, sees more. The
    data are made up and nothing is charged. Releases are kept in CLOISTER_HOME/audits: run again,
    the same command goes on.
    """
    from cloister.audit.kept import Effort
    from cloister.audit.rows import RowAttack, attack_rows
    from cloister.benchmarks.pages.markdown import require_markers
    from cloister.models.registry import present_name

    if markdown:
        require_markers(markdown, "rows")
    if spec and unit:
        raise InputError("the units of a spec are its own; leave out --unit, or --spec")
    facts = epsilon or "1", delta or "1e-6", spec, unit and unit.value
    attacks = [RowAttack.of(present_name(method), *facts) for method in methods]
    attacks += dict.fromkeys(control for attack in attacks for control in attack.controls())
    effort, home = Effort.within(releases, minutes), Home.current()
    results = _watched("attack", lambda advance: attack_rows(attacks, effort, home, advance))
    _show_rows(results, as_json)
    if markdown:
        words = f"{' '.join(methods)} --epsilon {facts[0]} --releases {releases}"
        command = f"cloister attack {words}{f' --unit {unit.value}' if unit else ''}"
        _write_rows(markdown, results, command)


def _show_rows(results: Sequence[RowsShown], as_json: bool) -> None:
    from cloister.evaluation.attacks import CAVEAT
    from cloister.flows.cli.console import say, show_facts, show_json

    if as_json:
        show_json([result.to_json() for result in results])
        return
    for result in results:
        facts = dict(zip(_ROW_HEADINGS[1:], _figures_of(result)[1:], strict=True))
        show_facts(f"Attacks on {result.attack.method}", facts)
    say(CAVEAT)


def _figures_of(result: RowsShown) -> list[str]:
    attack = result.attack
    targets = [
        f"{by.auc:.3f} ± {(by.high - by.low) / 2:.3f} ({result.hits[name]:.2f})"
        for name, by in result.membership.items()
    ]
    rates = [
        f"{ours:.3f}, {theirs:.3f}: {result.leakage[name].value:+.3f} ± "
        f"{result.leakage[name].margin:.3f}"
        for name, (ours, theirs) in result.rates.items()
    ]
    return [
        *(attack.method, attack.unit, str(result.releases), f"{attack.units:,}"),
        f"{attack.drawn:,}" if attack.drawn else "all",
        *targets,
        f"{result.epsilon:.2f}",
        f"{result.ordinary.value:.3f} ± {result.ordinary.margin:.3f}",
        *rates,
    ]


def _write_rows(document: Path, results: Sequence[RowsShown], command: str) -> None:
    from cloister.benchmarks.pages.markdown import insert_sections
    from cloister.tasks.home.process import code_version

    attack = results[0].attack
    tables = f" of {attack.spec.name}" if attack.spec else f", unit {attack.unit}"
    lines = [_ROW_HEADINGS, ["---"] * len(_ROW_HEADINGS), *map(_figures_of, results)]
    text = (
        f"### epsilon {attack.epsilon}{tables}\n\n`{command}`, Cloister {code_version()}, "
        f"{dt.datetime.now(dt.UTC).date()}: {sum(result.seconds for result in results) / 60:.0f} "
        "minutes of one core.\n\n"
    )
    insert_sections(document, "rows", [text + "\n".join(f"| {' | '.join(row)} |" for row in lines)])
