"""Commands on the house: people and their roles, tokens, rules, and a second officer's word."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloister.figures import count_of
from cloister.flows.cli.console import note, say, show_facts, show_json, show_table
from cloister.flows.cli.options import By, Json, Reason, command_group, example
from cloister.identities import known_by, named
from cloister.tasks.home.home import Home

if TYPE_CHECKING:
    from cloister.privacy.ledger import Proposal

PersonName = Annotated[str, typer.Argument(metavar="PERSON", help="The person's name.")]


def add_people_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    people = command_group(app, "people", "People: who may run, govern, decide and read.")
    people.command("list", epilog=example("cloister people list"))(list_people)
    people.command(
        "set",
        epilog=example(
            'cloister people set "A. Officer" --role officer --identity anna --reason "mandate 3"'
        ),
    )(set_someone)
    people.command(
        "token", epilog=example('cloister people token "A. Officer" --reason "works from home"')
    )(give_token)
    people.command(
        "withdraw", epilog=example('cloister people withdraw "A. Officer" --reason "left in May"')
    )(withdraw_someone)
    rules = command_group(
        app, "rules", "Rules: who must agree, how budgets admit releases, how long files stay."
    )
    rules.command("show", epilog=example("cloister rules show"))(show_rules)
    rules.command(
        "set",
        epilog=example(
            'cloister rules set --four-eyes --approvals officer=2 --reason "policy 7"',
            'cloister rules set visits --second-officer --reason "policy 8"',
            'cloister rules set --keep journal=365 --keep measures=90 --reason "policy 9"',
            'cloister rules set visits --admission filter --reason "policy 10"',
        ),
    )(change_rules)
    app.command("confirm", epilog=example('cloister confirm 41 --reason "as agreed on 3 May"'))(
        confirm_proposal
    )


def list_people(as_json: Json = False) -> None:
    """List the people of the house, with roles and identities, and what waits for a second officer.

    Without any, whoever can run commands in this home may do everything.
    """
    from cloister.tasks.ledger.people import house_of

    house = house_of(Home.current())
    waiting = [
        {"proposal": proposal.seq, "kind": proposal.kind, **proposal.body}
        for proposal in house.proposals.values()
    ]
    if as_json:
        people = [person.body for person in house.people.values()]
        show_json({"people": people, "proposals": waiting})
        return
    rows = [
        (person.name, ", ".join(person.roles), "\n".join(map(known_by, person.identities)))
        for person in house.people.values()
    ]
    show_table("People", ("person", "roles", "identities"), rows)
    if waiting:
        shown = [
            (entry["proposal"], entry["kind"], house.shown(entry["by"]), entry["reason"])
            for entry in waiting
        ]
        show_table("Waiting for another officer", ("proposal", "what", "by", "reason"), shown)


def set_someone(
    person: PersonName,
    reason: Reason,
    by: By,
    role: Annotated[
        list[str] | None,
        typer.Option(help="engineer, officer, reviewer or auditor; may be repeated."),
    ] = None,
    identity: Annotated[
        list[str] | None,
        typer.Option(
            help="What they are known by: a user of the system, or SUBJECT (oidc ISSUER); may be "
            "repeated."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The public key by which they sign from now on; see cloister keys make."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set a person's roles, in place of those they have, and add identities.

    engineer: runs releases. officer: opens accounts, grants budgets, sets people and rules, and
    decides on releases. reviewer: decides on releases. auditor: reads. From the first person on,
    only people with a role may change anything; the first is an officer, and is you.
    """
    from cloister.tasks.ledger.people import set_roles

    home = Home.current()
    _show_set(set_roles(home, person, role or (), identity or (), key, by, reason), person, as_json)


def withdraw_someone(person: PersonName, reason: Reason, by: By, as_json: Json = False) -> None:
    """Take all roles, identities and tokens from a person; what they did stays."""
    from cloister.tasks.ledger.people import withdraw

    _show_set(withdraw(Home.current(), person, by, reason), person, as_json)


def give_token(
    person: PersonName,
    reason: Reason,
    by: By,
    days: Annotated[int, typer.Option(min=1, max=3660, help="How long it is valid.")] = 90,
    as_json: Json = False,
) -> None:
    """Print a token by which a person is known where CLOISTER_TOKEN holds it; it is shown once.

    Standard output holds the token alone, so that it can go to a file.
    """
    from cloister.tasks.ledger.people import issue_token

    token, proposal = issue_token(Home.current(), person, days, by, reason)
    if as_json:
        show_json({"token": token, "proposal": proposal.seq if proposal else None})
        return
    print(token)  # noqa: T201 - one line, which no width of a terminal breaks
    counts = f"once another officer says cloister confirm {proposal.seq}" if proposal else "now"
    note(f"{person} is known by this token {counts}, for {count_of(days, 'day')}")


def show_rules(as_json: Json = False) -> None:
    """Show the rules of each account that has its own, and those of all others ("*")."""
    from cloister.privacy.ledger import Rules
    from cloister.tasks.ledger.people import house_of

    house = house_of(Home.current())
    by_account = {account: asdict(rules) for account, rules in house.rules.items()}
    if as_json:
        show_json(by_account)
    else:
        rows = [
            (account, *map(_value_text, rules.values())) for account, rules in by_account.items()
        ]
        names = [part.name.replace("_", " ") for part in fields(Rules)]
        show_table("Rules", ("account", *names), rows)


def change_rules(
    reason: Reason,
    by: By,
    account: Annotated[
        str, typer.Argument(metavar="[DATASET]", help="One account; by default all others.")
    ] = "*",
    four_eyes: Annotated[
        bool | None,
        typer.Option("--four-eyes/--two-eyes", help="Nobody decides on what they ran."),
    ] = None,
    approvals: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=NUMBER",
            help="How many officers or reviewers must approve; may be repeated.",
        ),
    ] = None,
    signed_approvals: Annotated[
        bool | None,
        typer.Option(
            "--signed-approvals/--unsigned-approvals",
            help="Approvals are signed with a personal key.",
        ),
    ] = None,
    purposes: Annotated[
        bool | None,
        typer.Option(
            "--purposes/--no-purposes", help="Each release states its purpose (--purpose)."
        ),
    ] = None,
    second_officer: Annotated[
        bool | None,
        typer.Option(
            "--second-officer/--one-officer",
            help="Grants, people and rules take effect when another officer confirms them.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=DAYS",
            help="How long a home keeps source, measures, journal, models or refusals of a release "
            "after they are needed; may be repeated.",
        ),
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(
            metavar="sum|filter",
            help="How budgets admit releases: by the sum of their epsilons, or by a privacy "
            "filter.",
        ),
    ] = None,
    refusals: Annotated[
        int | None,
        typer.Option(
            min=1, help="From which refusal of data in a budget window on a charge stays (5)."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Change rules from now on; those that are not named stay as they are.

    A filter counts what is charged from now on, within what the sum has left of a window; from the
    next window on it counts all. Back to the sum is from the next window on.
    """
    from cloister.tasks.ledger.people import set_rules

    named = {
        "four_eyes": four_eyes,
        "second_officer": second_officer,
        "approvals": approvals,
        "signed_approvals": signed_approvals,
        "purposes": purposes,
        "keep": keep,
        "admission": admission,
        "refusals": refusals,
    }
    changes = {name: value for name, value in named.items() if value is not None}
    _show_set(set_rules(Home.current(), account, changes, by, reason), account, as_json)


def confirm_proposal(
    proposal: Annotated[int, typer.Argument(metavar="ENTRY", help="The entry that proposes it.")],
    reason: Reason,
    by: By,
    as_json: Json = False,
) -> None:
    """Confirm what another officer proposed, which takes effect now."""
    from cloister.privacy.ledger.governance import confirm
    from cloister.tasks.ledger.access import open_ledger

    entry = confirm(open_ledger(Home.current()), proposal, by, reason)
    if as_json:
        show_json({"entry": entry.seq, "kind": entry.kind, "proposal": proposal})
    else:
        say(f"confirmed: entry {entry.seq} ({entry.kind}) does what entry {proposal} proposed")


def show_proposal(proposal: Proposal, as_json: bool) -> None:
    """Say that something waits for a second officer."""
    if as_json:
        show_json({"proposal": proposal.seq, "kind": proposal.kind, "body": dict(proposal.body)})
    else:
        body = {**proposal.body, "by": named("", str(proposal.body["by"]))}
        facts = {key: _value_text(value) for key, value in body.items()}
        show_facts("Proposed", facts | {"to confirm": f"cloister confirm {proposal.seq}"})
        say("It takes effect once another officer confirms it.")


def _show_set(proposal: Proposal | None, name: str, as_json: bool) -> None:
    if proposal:
        show_proposal(proposal, as_json)
    elif as_json:
        show_json({"set": name})
    else:
        say(f"set: {name}")


def _value_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {number}" for key, number in value.items()) or "by default"
    if isinstance(value, list):
        return ", ".join(known_by(str(each)) for each in value)
    return (
        {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )
