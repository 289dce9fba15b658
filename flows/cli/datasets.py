"""Commands on accounts: dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cloister.flows.cli.options import By, Dataset, Json, Reason, Unit, command_group, example


def add_dataset_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    datasets = command_group(
        app, "dataset", "Accounts: data sets, where they lie, and whom their releases protect."
    )
    datasets.command(
        "add",
        epilog=example(
            'cloister dataset add visits --place "/data/visits-*.csv" --unit key:patient '
            '--reason "register 12"',
            'cloister dataset add stays --place stays.csv --blocks "admitted (date) per month" '
            '--reason "register 13"',
        ),
    )(add_dataset)
    datasets.command(
        "reread",
        epilog=example(
            'cloister dataset reread stays.yaml --reason "stays are counted by discharge from 2027 '
            'on; budgets before do not bound what both show of one stay"'
        ),
    )(reread_dataset)
    datasets.command("list", epilog=example("cloister dataset list"))(list_datasets)


def add_dataset(
    dataset: Dataset,
    place: Annotated[
        list[str],
        typer.Option(
            help="A file, a pattern of files (*), or the URL of a database and its table, as in "
            "URL#TABLE; may be repeated."
        ),
    ],
    reason: Reason,
    by: By,
    unit: Unit = "row",
    relation: Annotated[
        str, typer.Option(help="add_remove or replace_one: how neighbouring data sets differ.")
    ] = "add_remove",
    blocks: Annotated[
        str | None,
        typer.Option(
            help="Of growing data, its blocks: 'COLUMN (TYPE) per month' or year, with a format as "
            "'COLUMN (TYPE, FORMAT)'."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Register a data set, or further places of one: each place is of one account.

    Its unit and relation are for life. A release whose data is registered to another account is
    refused, so that no second spec gives the same data a second budget.
    """
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.budgets import account_json, open_account

    account = open_account(Home.current(), dataset, unit, relation, place, by, reason, blocks)
    _show_accounts([account_json(account)], as_json)


def reread_dataset(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec of the account.")],
    reason: Reason,
    by: By,
    as_json: Json = False,
) -> None:
    """Move an account to how a spec reads its rows, units and blocks; for officers.

    Afterwards its budget bounds what releases before the move reveal of a unit, and what releases
    after it do, but not both together. Certificates say so, with the reason.
    """
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.budgets import account_json, reread_account

    account = reread_account(Home.current(), spec, by, reason)
    _show_accounts([account_json(account)], as_json)


def list_datasets(as_json: Json = False) -> None:
    """List the accounts, with their units, relations and places.

    An officer is told which of them read the same data.
    """
    from cloister.tasks.home.home import Home
    from cloister.tasks.ledger.access import existing_ledger
    from cloister.tasks.ledger.budgets import account_json
    from cloister.tasks.ledger.fingerprints import equal_data

    home = Home.current()
    ledger, equal = existing_ledger(home), equal_data(home)
    accounts = ledger.books().accounts.values() if ledger else []
    shown = [account_json(account) | {"equal": equal.get(account.name, [])} for account in accounts]
    _show_accounts(shown, as_json)


def _show_accounts(accounts: list[dict[str, Any]], as_json: bool) -> None:
    from cloister.flows.cli.console import show_json, show_table, warn

    if as_json:
        show_json(accounts)
    else:
        rows = [account | {"places": "\n".join(account["places"])} for account in accounts]
        names = ("dataset", "unit", "relation", "places", "blocks")
        show_table("Accounts", names, [tuple(row[name] for name in names) for row in rows])
        for account in accounts:
            for sentence in account.get("equal", []):
                warn(f"{account['dataset']}: {sentence}")
