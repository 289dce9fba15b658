"""Arguments and options that several commands share."""

from __future__ import annotations

import getpass
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cloister.schema.sources.files_and_urls import is_url

_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""The names that a spec may give its dataset."""

_LONGEST_UNIT = 200
"""Letters of the name of the column that identifies persons."""


def user() -> str:
    """The name that this person is logged in under."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _dataset(name: str) -> str:
    if not _DATASET.fullmatch(name):
        raise typer.BadParameter(
            "a dataset's name has 1 to 100 letters, digits, '.', '_' and '-', as its spec gives it"
        )
    return name


def _unit(name: str) -> str:
    if name != "row" and not (
        name.startswith("key:") and name[4:].isprintable() and 0 < len(name[4:]) <= _LONGEST_UNIT
    ):
        raise typer.BadParameter("a privacy unit is row, or key:COLUMN")
    return name


def _words(text: str) -> str:
    if not (text.isprintable() and text.strip()):
        raise typer.BadParameter("write a few words, without line breaks and control characters")
    return text


SpecFile = Annotated[
    Path, typer.Argument(metavar="SPEC", help="The spec of the dataset, a YAML file.")
]
ReleaseId = Annotated[
    str, typer.Argument(metavar="RELEASE", help="The id of a release, as r-0123456789.")
]
Dataset = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="The name of the dataset, as its spec gives it.", callback=_dataset
    ),
]
Unit = Annotated[str, typer.Option(help="Privacy unit: row, or key:COLUMN.", callback=_unit)]
DataOption = Annotated[Path | None, typer.Option(help="The data, in place of the spec's source.")]


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
By = Annotated[
    str,
    typer.Option(help="Who does this.", default_factory=user, show_default="you", callback=_words),
]
Reason = Annotated[str, typer.Option(help="Why, in a few words.", callback=_words)]


class Until(StrEnum):
    """What a plan is to reach with the least epsilon."""

    POSSIBLE = "possible"
    LEARNT = "learnt"


class LogOption(StrEnum):
    """How progress is written where it is not drawn on a terminal."""

    text = "text"
    json = "json"


class PanelOption(StrEnum):
    """The models that predict targets: Kamino's nine, or DPView's twelve."""

    nine = "nine"
    twelve = "twelve"


def split_place(out: str | Path | None) -> tuple[Path | None, str | None]:
    """Where a release goes: a folder, or a database by its URL."""
    if out is None:
        return None, None
    return (None, str(out)) if is_url(str(out)) else (Path(out), None)


def example(*lines: str) -> str:
    """The end of a command's help: examples to copy."""
    return "\n\n".join(("Example:", *lines))
