"""A release beside the one before, and a candidate attacked by its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloister.figures import figure
from cloister.flows.cli.console import say, show_json, show_table
from cloister.flows.cli.options import By, Json, Reason, ReleaseId
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity

if TYPE_CHECKING:
    from cloister.models.core.released_counts import Drift


def show(
    release: ReleaseId,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASE",
            help="Another release of the account; by default the one before.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a decision needs: spend, utility, violations, states, beside the release before.

    Says what the spec declares differently than it did then, and, by the noisy counts of both,
    whether the data changed beyond their noise. Utility is internal, and shown to those who may
    attack a candidate.
    """
    from cloister.flows.cli.reports import INTERNAL_NOTE
    from cloister.tasks.release.review import compare

    review = compare(Home.current(), release, identity(), against)
    if as_json:
        show_json(review.to_json())
        return
    views = [view.to_json() for view in (review.release, review.against) if view]
    names = [view["release"] for view in views]
    show_table("Spend", ("", *names), _beside([_spend(view) for view in views]))
    if violations := _beside([_violations(view) for view in views]):
        show_table("Violations in the synthetic rows", ("constraint", *names), violations)
    if utility := _beside([view["internal"] or {} for view in views]):
        show_table("Utility", ("measure", *names), utility, INTERNAL_NOTE)
    for account, entry in review.same_data.items():
        say(
            f"It read the same data as account {account} (entry {entry}), which has another budget."
        )
    if review.against:
        changes = [(change.what, change.before, change.now) for change in review.changes]
        if changes:
            show_table("Declared otherwise", ("", names[1], names[0]), changes)
        else:
            say(f"The spec declares what it declared for {names[1]}.")
    if review.drifts:
        headings = ("attribute", "verdict", "largest change", "before", "now", "95 % interval")
        rows = [_drift(drift) for drift in review.drifts]
        show_table("Did the data change, or the noise alone?", headings, rows)
    moves = review.release.entry.moves
    steps = [(move.words, move.time, move.who, move.reason) for move in moves]
    show_table(f"States of {names[0]}", ("state", "time", "by", "reason"), steps)


def review_attack(
    release: ReleaseId,
    reason: Reason,
    by: By,
    held_out: Annotated[
        Path | None,
        typer.Option(help="Real rows of the same population that were not in the data, in a file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack a candidate by its data, for whoever decides on it: an internal page of its risk.

    Distances to real rows, membership, attributes and singling out, beside --held-out rows. Reads
    the data again, costs no budget and proves nothing. The ledger records it first: to decide on
    exact figures is a selection on sensitive data, which no epsilon covers. The page is deleted
    with the measures.
    """
    from cloister.tasks.release.reports import CandidateAttack

    page = CandidateAttack.begin(Home.current(), release, held_out, by, reason).write_page()
    if as_json:
        show_json({"release": release, "page": str(page), "internal": True})
    else:
        say(f"Page (internal): {page}")


def _drift(drift: Drift) -> tuple[str, ...]:
    """The change of an attribute, its shares in percent."""
    shares = (drift.before, drift.now, drift.least, drift.most)
    before, now, least, most = (figure(100 * share) for share in shares)
    verdict = "changed" if drift.signal else "within the noise"
    return (drift.attribute, verdict, drift.cell, f"{before} %", f"{now} %", f"{least} to {most} %")


def _spend(view: Mapping[str, Any]) -> dict[str, object]:
    """What a release was charged, and what for."""
    stages = {f"stage {stage['name']}": stage["epsilon"] for stage in view.get("stages", ())}
    return {
        "state": view["state"],
        "method": view["method"],
        "blocks": ", ".join(view["blocks"]) or "-",
        "rows": view.get("rows", "-"),
        "epsilon charged": view["charged"]["epsilon"],
        "delta charged": view["charged"]["delta"],
        "epsilon accounted": view.get("accounted_epsilon", "-"),
        **{name: "not DP" if cost is None else cost for name, cost in stages.items()},
    }


def _violations(view: Mapping[str, Any]) -> dict[str, object]:
    return {
        f"{rule['name']} ({'hard' if rule['hard'] else 'soft'})": rule["violations"]
        for rule in view.get("violations", ())
    }


def _beside(columns: Sequence[Mapping[str, object]]) -> list[tuple[object, ...]]:
    """Values by name, a column for each release; a dash where it has none."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, *(column.get(name, "-") for column in columns)) for name in names]
