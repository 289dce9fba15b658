"""The request of a release, which its first run wrote into its folder and later runs follow."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cloister.errors import StorageError, VerificationError
from cloister.tasks.home.home import Home
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import ResolvedRequest

REQUEST_NAME = "order.json"

_NOT_REPEATED = ("spec", "by", "seed_sampling")
"""Fields that the command which finishes a release need not repeat as options."""

STATE_WORDS = MappingProxyType(
    {
        "reserved": "reserved: budget is set aside, no data was read",
        "spent": "spent: charged, but not finished",
    }
)
"""What the states of an unfinished release mean."""


def kept_request(folder: Path) -> ResolvedRequest:
    """The request that a release was begun with, as it was resolved then.

    Raises:
        VerificationError: it was altered, or an earlier version wrote it.
    """
    try:
        return ResolvedRequest.model_validate(_kept_request(folder))
    except ValueError:
        raise _altered(folder) from None


def kept_seed(folder: Path) -> int:
    """The seed for drawing rows that a release was begun with.

    Raises:
        VerificationError: the request in its folder was altered.
    """
    request = _kept_request(folder)
    seed = request.get("seed_sampling", request.get("seed"))  # as version 0.2 named it
    if type(seed) is not int:
        raise _altered(folder)
    return seed


def kept_previous(folder: Path) -> str | None:
    """The previous release whose numbers a release reuses; None if it reuses none.

    Raises:
        VerificationError: the request in its folder was altered.
    """
    previous = _kept_request(folder).get("prior")
    if not isinstance(previous, str | None):
        raise _altered(folder)
    return previous


def beginning_command(home: Home, release: str) -> str:
    """The command that began a release and, repeated, finishes it; empty if it is not known.

    It is unknown for a Python call, whose data is a frame in the home, and for a run that ended
    before it wrote its request.

    Raises:
        VerificationError: the request was altered.
    """
    folder = home.release(release)
    if not (folder / REQUEST_NAME).exists():
        return ""
    request = _kept_request(folder)
    if request.get("data") and Path(request["data"]).is_relative_to(home.folder):
        return ""
    if not isinstance(request.get("spec"), str):
        raise _altered(folder)
    words = ["cloister", "release", request["spec"]]
    for name, field in ReleaseRequest.model_fields.items():
        value = request.get(name)
        if name in _NOT_REPEATED or not value or value == field.default:
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def endings(home: Home, release: str) -> str:
    """What ends an unfinished release, in words: the command that began it, or withdrawing it."""
    command = beginning_command(home, release) or "the call that began it"
    return f"{command}, or given up by: cloister review withdraw {release} --reason TEXT"


def _kept_request(folder: Path) -> dict[str, Any]:
    path = folder / REQUEST_NAME
    try:
        request = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read ({error.strerror}); restore it from a backup"
        ) from None
    except (ValueError, RecursionError):
        raise _altered(folder) from None
    if not isinstance(request, dict):
        raise _altered(folder)
    return request


def _altered(folder: Path) -> VerificationError:
    return VerificationError(
        f"{folder / REQUEST_NAME} was altered; restore it, or withdraw the release and start a new "
        "one"
    )
