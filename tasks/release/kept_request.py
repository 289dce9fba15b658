"""The request of a release as its first run wrote it into its folder, which later runs follow."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from cloister.errors import StorageError, VerificationError
from cloister.tasks.home.home import Home
from cloister.tasks.requests.release_request import ReleaseRequest

REQUEST_NAME = "order.json"

_NOT_REPEATED = ("spec", "by", "seed_sampling")
"""Fields that a command which ends a release need not give again as options."""

STATE_WORDS = {
    "reserved": "reserved: budget is set aside, no data was read",
    "spent": "spent: charged, and not finished",
}
"""What the states of a release mean that a run left unfinished."""


def kept_seed(folder: Path) -> int:
    """The seed for drawing rows that a release was begun with.

    Raises:
        VerificationError: the request in its folder was altered.
    """
    kept = _kept_request(folder)
    seed = kept.get("seed_sampling", kept.get("seed"))  # as version 0.2 named it
    if type(seed) is not int:
        raise _altered(folder)
    return seed


def kept_prior(folder: Path) -> str | None:
    """The release whose numbers a release was begun to use again; None if it uses none.

    Raises:
        VerificationError: the request in its folder was altered.
    """
    prior = _kept_request(folder).get("prior")
    if not isinstance(prior, str | None):
        raise _altered(folder)
    return prior


def beginning_command(home: Home, release: str) -> str:
    """The command that began a release and, given again, ends it; empty where none is known.

    That of a Python call, whose data is a frame in the home, is not; nor is that of a run which
    ended before it wrote its request.

    Raises:
        VerificationError: the request was altered.
    """
    folder = home.release(release)
    if not (folder / REQUEST_NAME).exists():
        return ""
    kept = _kept_request(folder)
    if kept.get("data") and Path(kept["data"]).is_relative_to(home.folder):
        return ""
    words = ["cloister", "release", str(kept["spec"])]
    for name, field in ReleaseRequest.model_fields.items():
        value = kept.get(name)
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
