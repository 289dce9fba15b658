"""Commands on budgets and the ledger."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloister.figures import figure_above
from cloister.flows.cli import options

if TYPE_CHECKING:
    from cloister.privacy.accounting.accountants import Spend
    from cloister.privacy.ledger import BudgetStatus, Release

AnyDataset = Annotated[
    str | None, typer.Argument(metavar="[DATASET]", help="One dataset; by default all.")
]


def add_ledger_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    budget = options.command_group(app, "budget", "Budgets: what is granted, spent and left.")
    budget.command("show", epilog=options.example("cloister budget show demo"))(show_budgets)
    budget.command(
        "grant",
        epilog=options.example(
            'cloister budget grant demo --epsilon 10 --delta 1e-5 --per year --reason "policy 7"'
        ),
    )(grant)
    budget.command(
        "allow",
        epilog=options.example('cloister budget allow demo --reason "the export was repaired"'),
    )(allow)
    budget.command("history", epilog=options.example("cloister budget history demo"))(show_history)
    ledger = options.command_group(app, "ledger", "The ledger: releases and entries.")
    ledger.command(
        "list",
        epilog=options.example(
            "cloister ledger list demo",
            "cloister ledger list --unfinished",
            "cloister ledger list demo --declined",
        ),
    )(list_releases)
    ledger.command("show", epilog=options.example("cloister ledger show r-0123456789"))(
        show_release
    )
    ledger.command("export", epilog=options.example("cloister ledger export ledger-2026-11.jsonl"))(
        export
    )
    ledger.command(
        "restore", epilog=options.example("cloister ledger restore ledger-2026-11.jsonl")
    )(restore)


def show_budgets(dataset: AnyDataset = None, as_json: options.Json = False) -> None:
    """Show what was granted to a dataset, what its releases hold, and what is left.

    "spent" adds up the epsilons of releases, and "filter" is the least budget under which a privacy
    filter holds them: both hold however each was chosen, and "admits by" names the one by which
    releases are admitted. "composed" is the tight composition of their events, which holds for a
    schedule fixed in advance. "refusals" counts how often data was opened and refused: each refusal
    answered an exact question about it. Of a dataset with releases that are not
    differentially private, "composed" says that no epsilon bounds them; it is not known where no
    accountant reads all events.
    """
    from cloister.flows.cli.console import show_json, show_table
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import uncounted_releases
    from cloister.tasks.ledger.budgets import budgets

    shown = [
        _budget_json(status, uncounted_releases(status))
        for status in budgets(Home.current(), dataset)
    ]
    if as_json:
        show_json([_with_earlier_name(budget) for budget in shown])
    else:
        headings = (
            "dataset",
            "unit",
            "window",
            "granted",
            "delta",
            "spent",
            "reserved",
            "left",
            "lifetime",
            "releases",
            "refusals",
            "composed",
            "holds too",
            "admits by",
            "filter",
            "block",
        )
        cells = [budget | {"composed": budget["composed"] or "not known"} for budget in shown]
        show_table("Budgets (epsilon)", headings, [tuple(budget.values()) for budget in cells])


def grant(
    dataset: options.Dataset,
    epsilon: Annotated[str, typer.Option(help="Cap on the composed epsilon, exact.")],
    delta: Annotated[str, typer.Option(help="Delta at which releases are composed, exact.")],
    per: Annotated[str, typer.Option(help="year, month or ever.")],
    reason: options.Reason,
    by: options.By,
    unit: options.Unit = "row",
    yes: Annotated[
        bool, typer.Option("--yes", help="Grant what is below the spent, or far above the last.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Grant a budget; it replaces the one before from now on, and frees nothing that was spent.

    One of another period takes effect with the next window of both: until then the earlier one
    holds too.
    """
    from cloister.flows.cli.console import show_facts, show_json
    from cloister.flows.cli.people import show_proposal
    from cloister.privacy.ledger import BudgetGrant, Proposal
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.budgets import grant_budget

    budget = BudgetGrant.of(dataset, unit, epsilon, delta, per)
    granted = grant_budget(Home.current(), budget, by, reason, confirmed=yes)
    if isinstance(granted, Proposal):
        show_proposal(granted, as_json)
        return
    status = _budget_json(granted)
    if as_json:
        show_json(_with_earlier_name(status))
    else:
        show_facts("Granted", status)


def allow(
    dataset: options.Dataset, reason: options.Reason, by: options.By, as_json: options.Json = False
) -> None:
    """Allow the next runs of a dataset whose data was refused too often; an officer does.

    The charge of the last refused run stays.
    """
    from cloister.flows.cli.console import say, show_json
    from cloister.privacy.ledger.governance import allow_run
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import open_ledger

    entry = allow_run(open_ledger(Home.current()), dataset, by, reason)
    if as_json:
        show_json({"allowed": dataset, "entry": entry.seq})
    else:
        say(f"allowed: {dataset} may reserve again")


def show_history(dataset: AnyDataset = None, as_json: options.Json = False) -> None:
    """Show each grant of a budget: who, when, from what to what, and why."""
    from cloister.flows.cli.console import show_json, show_table
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.budgets import budget_history

    grants = budget_history(Home.current(), dataset)
    if as_json:
        show_json(grants)
    else:
        headings = (
            "entry",
            "time",
            "dataset",
            "unit",
            "from",
            "to",
            "by",
            "confirmed by",
            "reason",
        )
        show_table("Grants", headings, [tuple(granted.values()) for granted in grants])


def list_releases(
    dataset: AnyDataset = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished",
            help="Only those that a run began and none ended, with the version that began them: "
            "finish them before an upgrade.",
        ),
    ] = False,
    declined: Annotated[
        bool,
        typer.Option(
            "--declined",
            help="Only the requests that a budget declined: epsilon asked, left then, by whom.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List releases, oldest first, with their costs and states.

    "refused" ones were given back, unless they are "forfeited": those are charged.

    An unfinished release is charged, and finished by the command that began it. A newer version can
    finish it too if it makes the same plan; if not, only the version that began it can.
    """
    from cloister.flows.cli.console import show_json, show_table
    from cloister.privacy.ledger import State
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import releases

    if declined:
        _show_declined(dataset, as_json)
        return
    listed = releases(Home.current(), dataset)
    if unfinished:
        _show_unfinished([release for release in listed if release.pending], as_json)
        return
    shown = [_release_json(release) for release in listed]
    if as_json:
        show_json(shown)
    else:
        headings = (
            "release",
            "dataset",
            "unit",
            "method",
            "epsilon",
            "delta",
            "state",
            "reserved at",
            "last by",
            "refused",
        )
        refused = sum(release["refused"] for release in shown)
        note = f"refusals of data, each of which answered an exact question about it: {refused}"
        rows = [(release | {"state": State(release["state"]).words}).values() for release in shown]
        show_table("Releases", headings, [tuple(row) for row in rows], note)


def _show_declined(dataset: str | None, as_json: bool) -> None:
    from cloister.flows.cli.console import show_json, show_table
    from cloister.privacy.ledger.lookups import declined
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import existing_ledger
    from cloister.tasks.release.review import declined_facts

    ledger = existing_ledger(Home.current())
    house = ledger.books().house if ledger else None
    entries = declined(ledger, dataset) if ledger else ()
    shown = [declined_facts(entry, house) for entry in entries if house]
    if as_json:
        show_json(shown)
        return
    names = ("dataset", "unit", "method", "epsilon", "delta", "left", "by", "reason")
    note = "" if shown else "no request was declined"
    rows = [tuple(row.values()) for row in shown]
    show_table("Declined requests", ("entry", "time", *names), rows, note)


def _show_unfinished(pending: list[Release], as_json: bool) -> None:
    from cloister.flows.cli.console import say, show_json, show_table
    from cloister.tasks.home.home import Home
    from cloister.tasks.home.process import code_version
    from cloister.tasks.release.kept_request import endings

    home = Home.current()
    shown = [
        {
            key: value
            for key, value in _release_json(release).items()
            if key not in ("by", "refused")
        }
        | {"begun_by": release.request.code_version, "ended_by": endings(home, release)}
        for release in pending
    ]
    if as_json:
        show_json(shown)
        return
    headings = ("release", "dataset", "unit", "method", "epsilon", "delta", "state", "reserved at")
    note = f"this version: {code_version()}" if shown else "no release is unfinished"
    rows = [tuple(release.values())[:-1] for release in shown]
    show_table("Unfinished releases", (*headings, "begun by"), rows, note)
    for release in shown:
        say(f"{release['release']} is ended by: {release['ended_by']}")


def show_release(release: options.ReleaseId, as_json: options.Json = False) -> None:
    """Show one release: its charge, its events, and who moved it, when and why."""
    from cloister.flows.cli.console import show_facts, show_json, show_table
    from cloister.flows.cli.reports import show_guarantees
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import guarantees_of, release_of
    from cloister.tasks.release.kept_request import STATE_WORDS, endings

    home = Home.current()
    entry = release_of(home, release)
    steps = [
        {
            "entry": s.seq,
            "time": s.time,
            "state": s.state.value,
            "by": s.by,
            "person": s.person,
            "reason": s.reason,
            "evidence": s.evidence,
        }
        for s in entry.steps
    ]
    beside = {
        "consents": [asdict(consent) for consent in entry.consents],
        "looks": [asdict(look) for look in entry.looks],
    }
    about = {key: value for key, value in entry.request.body.items() if key != "events"}
    about |= {"refused": entry.refused, "runs": len(entry.runs), "sealed": entry.seal is not None}
    about |= {"deleted": ", ".join(kind for deletion in entry.deletions for kind in deletion.kinds)}
    if entry.pending:
        about |= {
            "state": STATE_WORDS.get(entry.state.value, entry.state.value),
            "ended by": endings(home, entry),
        }
    records = guarantees_of(entry)
    if as_json:
        of_records = {"records": records.model_dump(mode="json")} if records else {}
        show_json(about | of_records | {"events": entry.request.events, "steps": steps} | beside)
        return
    show_facts(f"Release {release}", {key: value for key, value in about.items() if value != ""})
    show_guarantees(records)
    show_table(
        "Steps",
        ("entry", "time", "state", "by", "identity", "reason"),
        [(move.seq, move.time, move.words, move.who, move.by, move.reason) for move in entry.moves],
    )


def export(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    as_json: options.Json = False,
) -> None:
    """Write all entries to a file, to be stored elsewhere; prints the anchor of the last.

    cloister verify FILE checks the copy; cloister verify --anchor NUMBER:HASH, that the ledger
    still holds its end.
    """
    from cloister.flows.cli.console import show_facts, show_json
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import export_ledger

    anchor = export_ledger(Home.current(), path)
    facts = {"file": str(path), "anchor": f"{anchor.seq}:{anchor.hash}"}
    if as_json:
        show_json(facts)
    else:
        show_facts("Exported", facts)


def restore(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An export of the ledger.")],
    as_json: options.Json = False,
) -> None:
    """Restore a ledger that is gone from an export, which must hold all that this home wrote."""
    from cloister.flows.cli.console import show_facts, show_json
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import restore_ledger

    anchor = restore_ledger(Home.current(), path)
    facts = {"entries": anchor.seq, "anchor": f"{anchor.seq}:{anchor.hash}"}
    if as_json:
        show_json(facts)
    else:
        show_facts("Restored", facts)


def _with_earlier_name(budget: dict[str, Any]) -> dict[str, Any]:
    """A budget whose composed epsilon is also under the name that programs may read it by."""
    return budget | {"together": budget["composed"]}


def _budget_json(status: BudgetStatus, uncounted: int = 0) -> dict[str, Any]:
    from cloister.privacy.exact import decimal, decimal_below
    from cloister.tasks.ledger.budgets import budget_text, composed_spend, filtered_spend

    budget = status.budget
    return {
        "dataset": budget.dataset,
        "unit": budget.unit,
        "window": status.window,
        "granted": decimal_below(budget.epsilon),
        "delta": decimal_below(budget.delta),
        "spent": decimal(status.spent),
        "reserved": decimal(status.reserved),
        "left": decimal_below(status.left),
        "lifetime": decimal(status.lifetime),
        "releases": status.releases,
        "refusals": status.refusals,
        "composed": _composed(composed_spend(status), uncounted),
        "holds_too": "; ".join(map(budget_text, status.also_binding)),
        "admission": _admission(status),
        "filter": decimal(filtered_spend(status)),
        "block": status.block,
    }


def _admission(status: BudgetStatus) -> str:
    now, later = status.admission, status.next_admission
    return now if now == later else f"{now}, from the next window on {later}"


def _composed(composed: Spend | None, uncounted: int) -> str | None:
    if uncounted:
        return f"unbounded: {uncounted} not differentially private"
    return None if composed is None else figure_above(composed.epsilon, 4)


def _release_json(release: Release) -> dict[str, Any]:
    from cloister.privacy.exact import decimal

    request = release.request
    return {
        "release": release.id,
        "dataset": request.dataset,
        "unit": request.unit,
        "method": request.method,
        "epsilon": decimal(request.epsilon),
        "delta": decimal(request.delta),
        "state": release.state.value,
        "reserved_at": release.reserved_at,
        "by": release.steps[-1].who,
        "refused": release.refused,
    }
