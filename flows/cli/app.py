"""The command line: ``cloister``. Exit codes: 0 done, 1 failed, 2 what was given cannot be used."""

from __future__ import annotations

import errno
import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from cloister.errors import CloisterError, InputError, NotPermitted, StorageError, VerificationError
from cloister.flows.cli.audit import add_audit_commands
from cloister.flows.cli.benchmark import add_benchmark_command
from cloister.flows.cli.data import add_data_commands
from cloister.flows.cli.datasets import add_dataset_commands
from cloister.flows.cli.deploy import add_deploy_commands
from cloister.flows.cli.keys import add_key_commands
from cloister.flows.cli.ledger import add_ledger_commands
from cloister.flows.cli.notify import add_notify_commands
from cloister.flows.cli.options import LogOption
from cloister.flows.cli.page import add_page_command
from cloister.flows.cli.people import add_people_commands
from cloister.flows.cli.release import add_release_commands
from cloister.flows.cli.retention import add_retention_commands
from cloister.flows.cli.review import add_review_commands
from cloister.identities import token_problem
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity
from cloister.tasks.home.process import INTERRUPTED, SELDOM, is_interruption

_WITHHELD = "its message is withheld, since it may quote the data: please report this"

app = typer.Typer(
    name="cloister",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    """Print the version of the package and the digest of its sources, as the ledger records it."""
    if wanted:
        from cloister.tasks.home.process import code_version

        typer.echo(code_version())
        raise typer.Exit


@app.callback()
def choose_log(
    log: Annotated[
        LogOption,
        typer.Option(help="Progress off a terminal: a short line of text for each event, or JSON."),
    ] = LogOption.text,
    version: Annotated[  # noqa: ARG001 - acts when it is parsed
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """Differentially private synthetic tables that keep their integrity constraints."""
    if log is LogOption.json:
        from cloister.flows.cli.console import log_as_json

        log_as_json(enabled=True)


for add_commands in (
    add_release_commands,
    add_data_commands,
    add_ledger_commands,
    add_dataset_commands,
    add_review_commands,
    add_people_commands,
    add_key_commands,
    add_retention_commands,
    add_page_command,
    add_notify_commands,
    add_audit_commands,
    add_benchmark_command,
    add_deploy_commands,
):
    add_commands(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave with its exit code.

    Errors are one message, without traceback or data.
    """
    gc.set_threshold(SELDOM)
    Home.current().configure()
    warnings.simplefilter("ignore")  # a warning of a library may quote the data
    logging.getLogger("absl").setLevel(logging.ERROR)
    # it logs with a traceback that a signal interrupted it, and passes the interruption on
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    try:
        _require_text(arguments)
        if _HELP.isdisjoint(arguments):
            _require_sound_token()
        _command().main(list(arguments), prog_name="cloister")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    except CloisterError as error:
        return _failed(str(error), error.exit_code)
    except OSError as error:
        return _failed(*_of_path(error))
    except Exception as error:  # noqa: BLE001 - any message may quote the data
        if is_interruption(error):
            return _failed(INTERRUPTED, 1)
        return _failed(f"{_raised_at(error)}; {_WITHHELD}", 1)
    return 0


@cache
def _command() -> Any:
    """The commands as Typer reads them from their functions, which takes tens of milliseconds."""
    return typer.main.get_command(app)


def _require_text(arguments: Sequence[str]) -> None:
    for number, argument in enumerate(arguments, 1):
        if not argument.isprintable() and any(
            "\ud800" <= letter <= "\udfff" for letter in argument
        ):
            raise InputError(
                f"word {number} of the command is not UTF-8 text; write it otherwise, or "
                "rename the file"
            )


_HELP = frozenset(("-h", "--help", "--version"))
"""Options that say something of the command alone."""


def _require_sound_token() -> None:
    """Check that CLOISTER_TOKEN, if it is set, shows somebody: readers are told too.

    Raises:
        InputError: it is no token.
        NotPermitted: it has ended, or is nobody's.
    """
    if not os.environ.get("CLOISTER_TOKEN", "").strip():
        return
    from cloister.tasks.ledger.access import existing_ledger

    shown, house = identity(), None
    with suppress(StorageError, VerificationError):  # the command itself says what is wrong there
        ledger = existing_ledger(Home.current())
        house = ledger.books().house if ledger else None
    now = datetime.now(UTC).isoformat()
    if house and (problem := token_problem(shown, now, known=house.person_of(shown) is not None)):
        raise NotPermitted(f"{problem[0].upper()}{problem[1:]}. Nothing was read or charged.")


def _failed(message: str, code: int) -> int:
    from cloister.flows.cli.console import wrap

    sys.stderr.write(wrap(f"error: {_shown(message)}", sys.stderr) + "\n")
    return code


def _of_path(error: OSError) -> tuple[str, int]:
    """The message of an error that no command foresaw, and its exit code: 2 for a bad path."""
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return f"a path that was given cannot be used ({os.strerror(error.errno)}); give another", 2
    return f"{_raised_at(error)}; {_WITHHELD}", 1


def _shown(message: str) -> str:
    """A message with control characters escaped, so that a terminal shows it as text."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1]
        for letter in message
    )


def _raised_at(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"unforeseen {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
