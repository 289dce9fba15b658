"""Arguments and options that several commands share; a release has those of a request's fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from cloister.tasks.home.identity import acting, identity
from cloister.tasks.requests.release_request import ReleaseRequest

GivenT = ParamSpec("GivenT")
ResultT = TypeVar("ResultT")

_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""The names that a spec may give its dataset."""

_LONGEST_UNIT = 200
"""Letters of the name of the column that identifies persons."""


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


def _release_named(what: str) -> str:
    from cloister.privacy.certificate.manifest import release_named

    return release_named(what)


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
Released = Annotated[
    str,
    typer.Argument(
        metavar="RELEASE",
        help="The id of a release, the folder of its public files, or one of them.",
        callback=_release_named,
    ),
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
    typer.Option(
        help="On whose behalf; who acts is the user of the system, or whom CLOISTER_TOKEN names.",
        default_factory=identity,
        show_default="you",
        callback=lambda text: acting(_words(text)),
    ),
]
Reason = Annotated[str, typer.Option(help="Why, in a few words.", callback=_words)]


class Until(StrEnum):
    """What a plan is to reach with the least epsilon."""

    POSSIBLE = "possible"
    LEARNT = "learnt"


class Of(StrEnum):
    """What the figures of an answer are of."""

    population = "population"
    table = "table"


class LogOption(StrEnum):
    """How progress is written where it is not drawn on a terminal."""

    text = "text"
    json = "json"


class PanelOption(StrEnum):
    """The models that predict targets: Kamino's nine, or DPView's twelve."""

    nine = "nine"
    twelve = "twelve"


def command_group(app: typer.Typer, name: str, summary: str) -> typer.Typer:
    """A group of commands of the command line, which shows its help where no command is given."""
    group = typer.Typer(help=summary, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group, name=name)
    return group


def example(*lines: str) -> str:
    """The end of a command's help: examples to copy."""
    return "\n\n".join(("Example:", *lines))


_ASKED = ("spec", "by")
"""Fields that are not options: the argument of a command, and who runs it."""

DELIVERY = ("data", "out", "replace", "csv", "seed_sampling", "prior", "purpose")
"""Fields that do not affect a plan."""


def command_of(*left_out: str) -> Callable[[Callable[..., ResultT]], Callable[..., ResultT]]:
    """Give a command the fields of a request as options, except some; its first argument is SPEC.

    The function gets the request as its first argument.

    Raises:
        BadParameter: an option is not what its field may be.
    """
    fields = _fields(left_out)

    def decorate(function: Callable[..., ResultT]) -> Callable[..., ResultT]:
        @wraps(function)
        def command(spec: Any, **arguments: Any) -> ResultT:
            values = {name: arguments.pop(name) for name in fields}
            return function(_request(spec, values), **arguments)

        parameters = list(signature(function, eval_str=True).parameters.values())[1:]
        shown = [_keyword("spec", SpecFile, Parameter.empty)]
        shown += [_keyword(name, _option(name, of), of.default) for name, of in fields.items()]
        _sign(
            command,
            [*shown, *(parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters)],
        )
        return command

    return decorate


def keywords_of(*left_out: str) -> Callable[[Callable[GivenT, ResultT]], Callable[..., ResultT]]:
    """Show the fields of a request, except some, in place of a function's ``**``, with help.

    Raises:
        TypeError: another argument is given.
    """
    fields = _fields(left_out)

    def decorate(function: Callable[GivenT, ResultT]) -> Callable[..., ResultT]:
        @wraps(function)
        def checked(*args: GivenT.args, **kwargs: GivenT.kwargs) -> ResultT:
            signature(checked).bind(*args, **kwargs)
            return function(*args, **kwargs)

        parameters = list(signature(function).parameters.values())[:-1]
        shown = [_keyword(name, of.annotation, of.default) for name, of in fields.items()]
        _sign(checked, [*parameters, *shown])
        described = "\n".join(f"        {name}: {of.description}" for name, of in fields.items())
        checked.__doc__ = f"{function.__doc__}\n    Options:\n{described}\n    "
        return checked

    return decorate


def _fields(left_out: tuple[str, ...]) -> dict[str, FieldInfo]:
    hidden = {*_ASKED, *left_out}
    return {name: of for name, of in ReleaseRequest.model_fields.items() if name not in hidden}


def _request(spec: Any, values: dict[str, Any]) -> ReleaseRequest:
    try:
        return ReleaseRequest(spec=spec, by=identity(), **values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        option = f"--{first['loc'][0]}".replace("_", "-")
        raise typer.BadParameter(first["msg"].lower(), param_hint=f"'{option}'") from None


def _option(name: str, field: FieldInfo) -> Any:
    """The type of an option of the command line, with its help."""
    flag = f"--{name.replace('_', '-')}"
    shown: Any = field.json_schema_extra or {}
    option = typer.Option(flag, help=field.description, metavar=shown.get("metavar"))
    return Annotated[field.annotation, option]


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _sign(function: Callable[..., Any], parameters: list[Parameter]) -> None:
    """Give a function the signature that it shows."""
    shown = Signature(parameters, return_annotation=signature(function).return_annotation)
    function.__signature__ = shown  # type: ignore[attr-defined]
    function.__annotations__ = {name: of.annotation for name, of in shown.parameters.items()}
