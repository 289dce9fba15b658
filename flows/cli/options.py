"""Arguments and options that several commands share."""

from __future__ import annotations

import getpass
import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloister.schema.sources.urls import is_url

if TYPE_CHECKING:
    from cloister.schema.declarations.release import Sampling
    from cloister.tasks.requests.options import Options

_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""The names that a spec may give its dataset."""

_PRIOR = re.compile(r"latest|r-[0-9a-z]{1,32}")
"""What may be used again: a release, or the latest."""

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


def _prior(named: str | None) -> str | None:
    if named is not None and not _PRIOR.fullmatch(named):
        raise typer.BadParameter("name a release, such as r-0123456789, or latest")
    return named


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
MethodOption = Annotated[
    str | None, typer.Option(help="Method of synthesis; see cloister methods.")
]
EpsilonOption = Annotated[
    str | None, typer.Option(help="Privacy budget of this release, exact: 0.5 or 1/3.")
]
DeltaOption = Annotated[
    str | None, typer.Option(help="Probability that the guarantee fails, less than 1 / rows.")
]
OutputRowsOption = Annotated[
    int | None, typer.Option(help="Rows to draw; by default as many as the spec declares.")
]
DataOption = Annotated[Path | None, typer.Option(help="The data, in place of the spec's source.")]


class SamplingOption(StrEnum):
    """How rows are drawn under soft constraints."""

    supports = "supports"
    sequential = "sequential"


SamplingChoiceOption = Annotated[
    SamplingOption | None,
    typer.Option(help="Rows under soft constraints: inside supports, or one after the other."),
]
ResampleOption = Annotated[
    float | None, typer.Option(help="Of sequential rows: share of cells drawn anew, 0 to 1.")
]
AcceptRejectOption = Annotated[
    int | None,
    typer.Option(metavar="TRIES", help="Of sequential rows: draw cells by accept-reject."),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where to train: auto, cpu, cuda or cuda:NUMBER.")
]
PriorOption = Annotated[
    str | None,
    typer.Option(
        metavar="RELEASE|latest",
        help="An earlier release of the dataset whose noisy numbers are used again.",
        callback=_prior,
    ),
]
CsvOption = Annotated[bool, typer.Option("--csv", help="Write synthetic.csv too.")]
ReplaceOption = Annotated[
    bool,
    typer.Option(
        "--replace", help="Replace the tables that an earlier release made in the database."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
By = Annotated[
    str,
    typer.Option(help="Who does this.", default_factory=user, show_default="you", callback=_words),
]
Reason = Annotated[str, typer.Option(help="Why, in a few words.", callback=_words)]


class LevelOption(StrEnum):
    """How much is measured against the real rows."""

    none = "none"
    quick = "quick"
    full = "full"


EvaluateOption = Annotated[
    LevelOption,
    typer.Option(help="Measures against the real data, internal; full trains models."),
]


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


def with_sampling(
    given: Options, sampling: SamplingOption | None, resample: float | None, tries: int | None
) -> Options:
    """The options with how rows are drawn under soft constraints."""
    way: Sampling | None = sampling.value if sampling else None
    return replace(given, sampling=way, resample=resample, tries=tries)


def with_replacing(given: Options, replaced: bool) -> Options:
    """The options with whether tables of an earlier release are replaced in the database."""
    return replace(given, replace=replaced)


def example(*lines: str) -> str:
    """The end of a command's help: examples to copy."""
    return "\n\n".join(("Example:", *lines))
