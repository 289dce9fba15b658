"""Signatures made from the fields of a release request: options of a command, and of Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from cloister.flows.cli.options import SpecFile, user
from cloister.tasks.requests.release_request import ReleaseRequest

GivenT = ParamSpec("GivenT")
ResultT = TypeVar("ResultT")

_ASKED = ("spec", "by")
"""Fields that are no options: the argument of a command, and who runs it."""

DELIVERY = ("data", "out", "replace", "csv", "seed_sampling", "prior")
"""Fields that change nothing of a plan."""


def command_of(*left_out: str) -> Callable[[Callable[..., ResultT]], Callable[..., ResultT]]:
    """Give a command the fields of a request as options, but for some; its first argument is SPEC.

    The function gets the request as its first argument.

    Raises:
        BadParameter: an option is not what its field may be.
    """
    fields = _fields(left_out)

    def decorate(function: Callable[..., ResultT]) -> Callable[..., ResultT]:
        @wraps(function)
        def command(spec: Any, **given: Any) -> ResultT:
            said = {name: given.pop(name) for name in fields}
            return function(_request(spec, said), **given)

        own = list(signature(function, eval_str=True).parameters.values())[1:]
        shown = [_keyword("spec", SpecFile, Parameter.empty)]
        shown += [_keyword(name, _option(name, of), of.default) for name, of in fields.items()]
        _sign(command, [*shown, *(each.replace(kind=Parameter.KEYWORD_ONLY) for each in own)])
        return command

    return decorate


def keywords_of(*left_out: str) -> Callable[[Callable[GivenT, ResultT]], Callable[..., ResultT]]:
    """Show the fields of a request, but for some, in place of the ``**`` of a function, with help.

    Raises:
        TypeError: another argument is given.
    """
    fields = _fields(left_out)

    def decorate(function: Callable[GivenT, ResultT]) -> Callable[..., ResultT]:
        @wraps(function)
        def checked(*args: GivenT.args, **kwargs: GivenT.kwargs) -> ResultT:
            signature(checked).bind(*args, **kwargs)
            return function(*args, **kwargs)

        own = list(signature(function).parameters.values())[:-1]
        shown = [_keyword(name, of.annotation, of.default) for name, of in fields.items()]
        _sign(checked, [*own, *shown])
        described = "\n".join(f"        {name}: {of.description}" for name, of in fields.items())
        checked.__doc__ = f"{function.__doc__}\n    Options:\n{described}\n    "
        return checked

    return decorate


def _fields(left_out: tuple[str, ...]) -> dict[str, FieldInfo]:
    hidden = {*_ASKED, *left_out}
    return {name: of for name, of in ReleaseRequest.model_fields.items() if name not in hidden}


def _request(spec: Any, said: dict[str, Any]) -> ReleaseRequest:
    try:
        return ReleaseRequest(spec=spec, by=user(), **said)
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
    given = Signature(parameters, return_annotation=signature(function).return_annotation)
    function.__signature__ = given  # type: ignore[attr-defined]
    function.__annotations__ = {name: of.annotation for name, of in given.parameters.items()}
