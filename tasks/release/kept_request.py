"""The request of a release as its first run wrote it into its folder, which later runs follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cloister.errors import StorageError, VerificationError

REQUEST_NAME = "order.json"


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
    """The release whose numbers a release was begun to use again; None if it uses none.

    Raises:
        VerificationError: the request in its folder was altered.
    """
    previous = _kept_request(folder).get("prior")
    if not isinstance(previous, str | None):
        raise _altered(folder)
    return previous


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
