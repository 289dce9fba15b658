"""Commands on keys: the house's, which proves its statements to others, and those of people."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cloister.flows.cli.console import say, show_json
from cloister.flows.cli.options import By, Json, Reason, command_group, example
from cloister.tasks.home.home import Home

PublicFile = Annotated[Path, typer.Argument(metavar="FILE", help="A public key, in PEM.")]


def add_key_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    keys = command_group(
        app, "keys", "Keys: the house's, which verifies its signatures, and people's."
    )
    keys.command("show", epilog=example("cloister keys show > house.pub"))(show_key)
    keys.command("make", epilog=example("cloister keys make anna.pem > anna.pub"))(make_key)
    keys.command(
        "trust", epilog=example('cloister keys trust second.pub --reason "the home in Porto"')
    )(trust_key)
    keys.command(
        "revoke", epilog=example('cloister keys revoke anna.pub --reason "laptop stolen on 3 May"')
    )(revoke_key)
    keys.command("rotate", epilog=example('cloister keys rotate --reason "each January"'))(rotate)


def show_key(
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Print the statements on trusted keys, oldest first."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the house's public key, which holders of releases need: give it by another way."""
    from cloister.tasks.ledger.keys import house_signer
    from cloister.tasks.ledger.people import refresh_trust

    home = Home.current()
    key = house_signer(home).key
    if trust:
        statements = refresh_trust(home)
        sys.stdout.write(statements.read_text(encoding="ascii") if statements else "")
    elif as_json:
        show_json({"id": key.id, "pem": key.pem})
    else:
        say(key.pem.rstrip())


def make_key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private half goes.")],
    as_json: Json = False,
) -> None:
    """Make a key of a person, its private half for its owner alone; print the public half.

    A terminal is asked for a passphrase, which may be empty; elsewhere CLOISTER_PASSPHRASE holds
    it, if there is one. An officer makes the key known with cloister people set --key.
    """
    from cloister.errors import StorageError
    from cloister.privacy.signing import FileSigner
    from cloister.tasks.ledger.keys import PASSPHRASE

    if path.exists():
        raise StorageError(f"{path} is there already; give another file")
    passphrase = os.environ.get(PASSPHRASE, "")
    if PASSPHRASE not in os.environ and sys.stdin.isatty():
        question = "Passphrase (empty for none)"
        hidden: dict[str, Any] = {"hide_input": True, "confirmation_prompt": True, "err": True}
        passphrase = typer.prompt(question, default="", show_default=False, **hidden)
    key = FileSigner.open(path, passphrase=lambda: passphrase).key
    if as_json:
        show_json({"id": key.id, "pem": key.pem})
    else:
        say(key.pem.rstrip())


def trust_key(key: PublicFile, reason: Reason, by: By, as_json: Json = False) -> None:
    """Trust the key of another home that shares the ledger: what it signs is the house's word."""
    from cloister.privacy.ledger.governance import trust
    from cloister.privacy.signing import PublicKey
    from cloister.tasks.ledger.access import open_ledger

    trusted = PublicKey.read(key)
    trust(open_ledger(Home.current()), trusted, by, reason)
    if as_json:
        show_json({"id": trusted.id})
    else:
        say(f"trusted: the key {trusted.id[:16]}")


def revoke_key(key: PublicFile, reason: Reason, by: By, as_json: Json = False) -> None:
    """Revoke a key: what it signed counts only where the ledger shows that it is older."""
    from cloister.privacy.ledger.governance import revoke
    from cloister.privacy.signing import PublicKey
    from cloister.tasks.ledger.access import open_ledger

    revoked = PublicKey.read(key)
    revoke(open_ledger(Home.current()), revoked, by, reason)
    if as_json:
        show_json({"id": revoked.id})
    else:
        say(f"revoked: the key {revoked.id[:16]}")


def rotate(reason: Reason, by: By, as_json: Json = False) -> None:
    """Change the house's key: the old one vouches for the new, and signs nothing more.

    Holders of the old public key follow by the statements that lie beside what they get. The new
    key signs all releases of the home again, so that holders of either key can verify them.
    """
    from cloister.flows.review import countersign_all
    from cloister.tasks.ledger.people import rotate_house_key

    home = Home.current()
    key = rotate_house_key(home, by, reason)
    problems = countersign_all(home, by)
    if as_json:
        show_json({"id": key.id, "pem": key.pem, "problems": problems})
    else:
        say("\n".join([*problems, key.pem.rstrip()]))
