"""The request of a release, which its first run wrote into its folder and later runs follow.

It is sealed: a request that was altered, or is another release's, is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cloister.errors import StorageError, VerificationError
from cloister.privacy.ledger import Release, State
from cloister.tasks.home.files import NO_SEAL, read_sealed, write_sealed
from cloister.tasks.home.home import Home
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import ResolvedRequest

REQUEST_NAME = "order.json"

_REMEDY = "restore it, or withdraw the release and start a new one"

_NOT_REPEATED = ("spec", "by", "seed_sampling")
"""Fields that the command which finishes a release need not repeat as options."""

STATE_WORDS = MappingProxyType(
    {
        "reserved": "reserved: budget is set aside, no data was read",
        "spent": "spent: charged, but not finished",
    }
)
"""What the states of an unfinished release mean."""


def has_request(home: Home, release: str) -> bool:
    """Whether a run wrote the request of a release: one that ended before did not."""
    return (home.release(release) / REQUEST_NAME).exists()


def keep_request(home: Home, release: str, request: ResolvedRequest) -> None:
    """Write the request that a release is begun with.

    Raises:
        StorageError: it cannot be written.
    """
    write_sealed(home.release(release) / REQUEST_NAME, request.model_dump(mode="json"), home)


def kept_request(home: Home, release: str) -> ResolvedRequest:
    """The request that a release was begun with, as it was resolved then.

    Raises:
        StorageError: it is missing.
        VerificationError: it was altered, or an earlier version wrote it.
    """
    try:
        return ResolvedRequest.model_validate(_kept_request(home, release))
    except ValueError:
        raise _altered(home, release) from None


def kept_seed(home: Home, release: str) -> int:
    """The seed for drawing rows that a release was begun with.

    Raises:
        StorageError, VerificationError: the request in its folder is missing or was altered.
    """
    request = _kept_request(home, release)
    seed = request.get("seed_sampling", request.get("seed"))  # as version 0.2 named it
    if type(seed) is not int:
        raise _altered(home, release)
    return seed


def kept_previous(home: Home, release: str) -> str | None:
    """The previous release whose numbers a release reuses; None if it reuses none.

    Raises:
        StorageError, VerificationError: the request in its folder is missing or was altered.
    """
    previous = _kept_request(home, release).get("prior")
    if not isinstance(previous, str | None):
        raise _altered(home, release)
    return previous


def beginning_command(home: Home, release: Release) -> str:
    """The command that began a release and, repeated, finishes it; empty if it is not known.

    It is unknown for a Python call, whose data is a frame in the home, for a run that ended before
    it wrote its request, and for one in another home.

    Raises:
        StorageError, VerificationError: the request is missing or was altered.
    """
    if _has_none(home, release):
        return ""
    request = _kept_request(home, release.id)
    if request.get("data") and Path(request["data"]).is_relative_to(home.folder):
        return ""
    if not isinstance(request.get("spec"), str):
        raise _altered(home, release.id)
    words = ["cloister", "release", request["spec"]]
    for name, field in ReleaseRequest.model_fields.items():
        value = request.get(name)
        if name in _NOT_REPEATED or not value or value == field.default:
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def endings(home: Home, release: Release) -> str:
    """What ends an unfinished release, in words: the command that began it, or withdrawing it."""
    command = beginning_command(home, release) or "the call that began it"
    return f"{command}, or given up by: cloister review withdraw {release.id} --reason TEXT"


def request_findings(home: Home, release: Release) -> Iterator[str]:
    """What is wrong with the request of an unfinished release; that of others is listed."""
    path = home.release(release.id) / REQUEST_NAME
    if _has_none(home, release):
        return
    if not path.exists():
        yield f"{path}: is missing; {_REMEDY}"
        return
    try:
        if not read_sealed(path, home, _REMEDY)[1]:
            yield f"{path}: {NO_SEAL}, and finish the release or withdraw it"
    except VerificationError as error:
        yield str(error)


def _has_none(home: Home, release: Release) -> bool:
    """Whether a release has no request here: it is written before the data is opened."""
    begun = release.state is not State.RESERVED and home.release(release.id).exists()
    return not begun and not has_request(home, release.id)


def _kept_request(home: Home, release: str) -> dict[str, Any]:
    path = home.release(release) / REQUEST_NAME
    if not path.exists():
        raise StorageError(f"{path} is missing; restore it from a backup")
    return read_sealed(path, home, _REMEDY)[0]


def _altered(home: Home, release: str) -> VerificationError:
    return VerificationError(f"{home.release(release) / REQUEST_NAME} was altered; {_REMEDY}")
