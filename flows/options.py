"""Arguments and options that several commands share."""

from __future__ import annotations

import getpass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


def user() -> str:
    """The name that this person is logged in under."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The spec of the dataset, a YAML file.")]
ReleaseId = Annotated[str, typer.Argument(metavar="RELEASE", help="The id of a release, as r-0123456789.")]
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The name of the dataset, as its spec gives it.")]
Method = Annotated[str | None, typer.Option(help="Method of synthesis; see cloister methods.")]
Epsilon = Annotated[str | None, typer.Option(help="Privacy budget of this release, exact: 0.5 or 1/3.")]
Delta = Annotated[str | None, typer.Option(help="Probability that the guarantee fails, less than 1 / rows.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
By = Annotated[str, typer.Option(help="Who does this.", default_factory=user, show_default="you")]
Reason = Annotated[str, typer.Option(help="Why, in a few words.")]


class Evaluate(StrEnum):
    """How much is measured against the real rows."""

    none = "none"
    quick = "quick"
    full = "full"


class Classifiers(StrEnum):
    """The models that predict targets: Kamino's nine, or DPView's twelve."""

    nine = "nine"
    twelve = "twelve"


def example(*lines: str) -> str:
    """The end of a command's help: examples to copy."""
    return "\n\n".join(("Example:", *lines))
