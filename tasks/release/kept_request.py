"""The request in the folder of a release: written before the charge, and read by each later run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cloister.errors import InputError, StorageError, VerificationError
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.declarations import LATEST
from cloister.tasks.release.prior import find_prior
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.files import write_json
from cloister.tasks.runtime.home import Home

FILE_NAME = "order.json"


def keep_request(
    folder: Path, request: ResolvedRequest, context: PublicContext, home: Home
) -> None:
    """Write the request with its seed and its prior into the folder of its release.

    Not if an earlier run did.

    Raises:
        InputError: the earlier run had others, or the prior cannot be used.
    """
    path = folder / FILE_NAME
    if not path.exists():
        prior = find_prior(request, context, home)
        seed = request.seed_sampling
        kept = request.filled(
            seed_sampling=SamplingSource().seed if seed is None else seed,
            prior=prior.id if prior else None,
        )
        write_json(path, kept.model_dump(mode="json"))
        return
    if request.seed_sampling not in (None, kept_seed(folder)):
        raise InputError(
            "this release was begun with another --seed-sampling; give that one, or leave it out"
        )
    if request.prior not in (None, LATEST, kept_prior(folder)):
        raise InputError("this release was begun with another --prior; give that one")


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


def _kept_request(folder: Path) -> dict[str, Any]:
    path = folder / FILE_NAME
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
        f"{folder / FILE_NAME} was altered; restore it, or withdraw the release and start a new one"
    )
