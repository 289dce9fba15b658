"""Commands of review: list, show, approve, reject, publish, withdraw; verify, report and fetch."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cloister.errors import InputError
from cloister.figures import count_of
from cloister.flows.cli.comparison import review_attack, show
from cloister.flows.cli.console import say, show_json, show_table, warn
from cloister.flows.cli.options import By, Json, Reason, ReleaseId, command_group, example
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity

_MOVES = {
    "reject": ("rejected", "Reject a candidate; its charge stays."),
    "withdraw": (
        "withdrawn",
        "Withdraw a release; a reservation that was never used is given back.",
    ),
}


def add_review_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    review = command_group(app, "review", "Review of releases.")
    review.command("list", epilog=example("cloister review list", "cloister review list --all"))(
        list_releases
    )
    review.command(
        "show",
        epilog=example(
            "cloister review show r-0123456789",
            "cloister review show r-0123456789 --against r-abcdefghjk",
        ),
    )(show)
    review.command(
        "attack",
        epilog=example('cloister review attack r-0123456789 --reason "small villages"'),
    )(review_attack)
    for name, (state, summary) in _MOVES.items():
        text = example(
            f'cloister review {name} r-0123456789 --by "A. Officer" --reason "checked the '
            'certificate"'
        )
        review.command(name, help=summary, epilog=text)(_mover(state))
    review.command(
        "approve",
        epilog=example(
            'cloister review approve r-0123456789 --reason "checked the certificate"',
            'cloister review approve r-0123456789 --sign anna.pem --reason "policy 7"',
        ),
    )(approve)
    review.command(
        "publish",
        epilog=example('cloister review publish r-0123456789 --reason "sent to the partners"'),
    )(publish)
    review.command(
        "countersign", epilog=example("cloister review countersign r-0123456789 --by officer")
    )(countersign)
    app.command(
        epilog=example("cloister verify", "cloister verify r-0123456789", "cloister verify out/")
    )(verify)
    app.command(epilog=example("cloister trail folder/ --ledger ledger.jsonl --key house.pub"))(
        trail
    )
    app.command(
        epilog=example(
            "cloister report r-0123456789",
            "cloister report r-0123456789 --for analysts --out report.html",
            "cloister report r-0123456789 --registry visits.yaml",
        )
    )(report)
    app.command(
        epilog=example("cloister fetch r-0123456789", "cloister fetch r-0123456789 --out again/")
    )(fetch)


def list_releases(
    whole: Annotated[
        bool, typer.Option("--all", help="List all releases, those that wait for review first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the releases that wait for review."""
    from cloister.tasks.release.review import by_state

    listed = [
        release
        for release in by_state(Home.current())
        if whole or release.state.value == "candidate"
    ]
    rows = [
        (
            *(
                release.id,
                release.request.dataset,
                release.request.method,
                float(release.request.epsilon),
            ),
            *((release.state.value,) if whole else ()),
            release.steps[-1].time,
        )
        for release in listed
    ]
    state = ("state",) if whole else ()
    headings = ("release", "dataset", "method", "epsilon", *state, "since")
    if as_json:
        show_json([dict(zip(headings, row, strict=True)) for row in rows])
    else:
        show_table("Releases" if whole else "Candidates", headings, rows)


def verify(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[RELEASE|PATH]", help="One release, its folder, or an exported ledger."
        ),
    ] = None,
    anchor: Annotated[
        list[str] | None,
        typer.Option(
            help="NUMBER:HASH of an entry that the ledger must hold, as exports print it."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="The public key of the house that made a folder or an export; see cloister keys."
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Of a folder: an export of the ledger, which shows what was signed before a key "
            "was revoked."
        ),
    ] = None,
    max_age: Annotated[
        int | None,
        typer.Option(metavar="DAYS", help="Of a folder: how old its last statement may be."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute the ledger's chain and budgets, manifests and certificates; check signatures.

    Name whatever was altered or cut off. Of a folder, say whose it is and what was decided, too: a
    holder needs its files and the house's public key alone.

    Leaves with exit code 1 if anything is wrong; for a folder with 3 if no known key signed it, and
    4 if it is not approved, or withdrawn.
    """
    from cloister.privacy.signing import PublicKey
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import anchor_of
    from cloister.tasks.release.signing import folder_worth
    from cloister.tasks.release.verify import verify_records

    anchors = [anchor_of(text) for text in anchor or ()]
    public_key = PublicKey.read(key) if key else None
    checked, findings = verify_records(Home.current(), what, anchors, public_key)
    folder = Path(what) if what is not None and Path(what).is_dir() else None
    if ledger:
        of_export = verify_records(Home.current(), str(ledger), [], public_key)
        checked, findings = [*checked, *of_export[0]], [*findings, *of_export[1]]
    worth = None
    if folder and not findings:
        worth = folder_worth(Home.current(), folder, key, max_age, ledger)
    if as_json:
        signed = {"signatures": worth.words} if worth else {}
        show_json({"checked": checked, "findings": findings} | signed)
    else:
        summary = f"{count_of(len(findings), 'problem')} in {', '.join(checked)}"
        say("\n".join([*findings, summary, *([worth.words] if worth else [])]))
    if findings or (worth and worth.code):
        raise typer.Exit(worth.code if worth else 1)


def trail(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The files of a release.")],
    ledger: Annotated[Path, typer.Option(help="An export of the ledger, by the house.")],
    key: Annotated[
        Path, typer.Option(help="The house's public key, obtained by another way than the export.")
    ],
    as_json: Json = False,
) -> None:
    """Tell the story of a release: whose data, which budget, who did what, when and why.

    Needs no home: the folder, the export and the key are enough, and are verified first. Leaves
    with the exit codes of cloister verify.
    """
    from cloister.flows.cli.console import show_facts
    from cloister.tasks.release.trail import trail_of

    story = trail_of(Home.current(), folder, ledger, key)
    worth = story.worth.words if story.worth else "not judged, since something was altered"
    if as_json:
        content = {"facts": story.facts, "steps": story.steps, "findings": story.findings}
        show_json(content | {"signatures": worth})
    else:
        show_facts(f"Release {story.facts['release']}", dict(story.facts))
        rows = [tuple(step.values()) for step in story.steps]
        show_table("What happened", ("entry", "time", "what", "by", "roles", "reason"), rows)
        say("\n".join([*story.findings, f"the folder: {worth}"]))
    if story.findings or (story.worth and story.worth.code):
        raise typer.Exit(story.worth.code if story.worth else 1)


def countersign(release: ReleaseId, by: By, as_json: Json = False) -> None:
    """Sign the moves of a release that have no statement: those of an earlier version.

    Its folder is verified first.
    """
    from cloister.flows.review import countersign_release

    signed = [state.words for state in countersign_release(Home.current(), release, by)]
    if as_json:
        show_json({"release": release, "signed": signed})
    else:
        say(f"{release}: signed {', '.join(signed) or 'nothing, all was signed'}")


class Audience(StrEnum):
    """Whom a report is for."""

    analysts = "analysts"
    reviewers = "reviewers"


def report(
    release: Annotated[
        str,
        typer.Argument(
            metavar="RELEASE",
            help="The id of a release; with --for its public folder, or a file in it, too.",
        ),
    ],
    audience: Annotated[
        Audience | None,
        typer.Option(
            "--for",
            help="One HTML page of columns, pairs, rules, losses: public for analysts, with exact "
            "figures and internal for reviewers.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A copy of the page for analysts, ending in .html."),
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the entry of an approved release for the OpenDP registry of deployments, "
            "tier 3, from its certificate alone.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the certificate of a release, what was decided on it, and where its page lies.

    With --for, say where the report lies that was made with the release. Of a release of an earlier
    version the one for analysts is made now, from its model.
    """
    from cloister.flows.cli.reports import show_certificate
    from cloister.tasks.release.publish import write_registry_entry

    home = Home.current()
    if audience:
        _show_report(home, release, audience, out, as_json)
        return
    if registry:
        write_registry_entry(home, release, registry)
    show_certificate(home, release, as_json)


def _show_report(
    home: Home, release: str, audience: Audience, out: Path | None, as_json: bool
) -> None:
    from cloister.tasks.release.reports import internal_report_of, report_of

    if audience is Audience.analysts:
        page = report_of(home, release, out)
    elif out is None:
        page = internal_report_of(home, release, identity())
    else:
        raise InputError("--for reviewers: the page is internal and stays in the home; drop --out")
    if as_json:
        show_json({"release": release, "page": str(page)})
    else:
        say(f"Page: {page}")


def _mover(state: str) -> Callable[..., None]:
    def move(release: ReleaseId, reason: Reason, by: By, as_json: Json = False) -> None:
        """Move a release to the state, in the ledger, and print its new state; free of charge."""
        from cloister.flows.review import move_release

        home = Home.current()
        _say_state(home, release, move_release(home, release, state, by, reason), as_json)

    return move


def approve(
    release: ReleaseId,
    reason: Reason,
    by: By,
    sign: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            envvar="CLOISTER_KEY",
            help="Your own key, a file or pkcs11:token=...;object=...?module-path=..., where the "
            "rules ask that people sign.",
        ),
    ] = "",
    same_data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACCOUNT",
            help="Another account that read the same rows, as you know: an officer is asked for "
            "each.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Approve a candidate: its folder is verified first.

    Where the rules ask for several people, it stays a candidate until as many have approved it.
    Where cloister deploy said --publish-on-approval, it is published then.
    """
    from cloister.flows.review import move_release
    from cloister.tasks.ledger.access import release_of
    from cloister.tasks.stores import prefect_registration

    home = Home.current()
    now = move_release(home, release, "approved", by, reason, sign, same_data or ())
    account = release_of(home, release).request.dataset
    if now == "approved" and prefect_registration.is_published_on_approval(home, account):
        now = _publish(home, release, by, reason)
    elif now == "approved":
        for problem in prefect_registration.altered_registrations(home):
            warn(f"{problem}; it publishes nothing: where it should, cloister review publish")
    _say_state(home, release, now, as_json)


def publish(release: ReleaseId, reason: Reason, by: By, as_json: Json = False) -> None:
    """Publish an approved release, in a run of its own of the flow publish; free of charge.

    Its folder is verified first.
    """
    home = Home.current()
    _say_state(home, release, _publish(home, release, by, reason), as_json)


def _publish(home: Home, release: str, by: str, reason: str) -> str:
    from cloister.flows.cli.console import progress
    from cloister.tasks.home.process import reporting_to
    from cloister.tasks.stores.prefect_server import serving

    with progress() as watcher, reporting_to(watcher), serving(home):
        from cloister.flows.publishing import publish as flow

        state: str = flow(release, by, reason)
        return state


def _say_state(home: Home, release: str, now: str, as_json: bool) -> None:
    from cloister.privacy.ledger import State
    from cloister.tasks.ledger.people import approvals_missing

    missing = approvals_missing(home, release) if State(now) is State.CANDIDATE else ""
    if as_json:
        show_json({"release": release, "state": now, "missing": missing})
    else:
        waits = f": {missing} must approve it too" if missing else ""
        say(f"{release} is {State(now).words}{waits}")


def fetch(
    release: ReleaseId,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder for the files; by default they go to the home."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Restore the public files of a release from the DVC remote, checked against the ledger."""
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import release_of
    from cloister.tasks.release.verify import fetch_release

    folder = fetch_release(Home.current(), release, out)
    state = release_of(Home.current(), release).state.words
    if as_json:
        show_json({"release": release, "state": state, "public": str(folder)})
    else:
        say(f"Files of release {release}, which is {state}: {folder}")
