"""The command line: ``cloister``. Exit codes: 0 done, 1 failed, 2 what was given cannot be used."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from cloister.errors import CloisterError
from flows import cli_benchmark, cli_data, cli_deploy, cli_ledger, cli_release, cli_review
from tasks.home import Home

app = typer.Typer(
    name="cloister",
    help="Differentially private synthetic tables that keep their integrity constraints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for commands in (cli_release, cli_data, cli_ledger, cli_review, cli_benchmark, cli_deploy):
    commands.add_to(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave with its exit code; errors are one message, without traceback or data."""
    Home.current().configure()
    warnings.simplefilter("ignore")  # a warning of a library may quote the data
    logging.getLogger("absl").setLevel(logging.ERROR)
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    try:
        typer.main.get_command(app).main(list(arguments), prog_name="cloister")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    except CloisterError as error:
        return _failed(str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 - any message may quote the data
        return _failed(f"{_place(error)}; its message is withheld, since it may quote the data: please report this", 1)
    return 0


def _failed(message: str, code: int) -> int:
    sys.stderr.write(f"error: {message}\n")
    return code


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"unforeseen {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
