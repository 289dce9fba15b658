"""The end of a release: its outcome is stored, and the ledger records that it was reported.

A run that is killed after the candidate entry leaves a finished release that was not reported. The
same request then gets this release, at no charge; once it was reported, the same request is a new
release.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from cloister.errors import InputError, VerificationError
from cloister.figures import count_of
from cloister.privacy.exact import decimal_below
from cloister.tasks.domains.plan import SPEC_NAME
from cloister.tasks.ledger.transitions import open_ledger
from cloister.tasks.ledger.verify import release_problems
from cloister.tasks.release.charge import ReservedRelease
from cloister.tasks.release.load import load_release
from cloister.tasks.requests.public_context import public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.files import replace_file, write_json
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.places import copy_whole
from cloister.tasks.runtime.references import digest_of
from cloister.tasks.runtime.step import step

_ended: ContextVar[list[str] | None] = ContextVar("ended", default=None)
"""The releases that ended inside the enclosing block of ``confirm_delivery``, if there is one."""


def keep_outcome(release: str, content: dict[str, Any], home: Home) -> None:
    """Store the outcome of a release before it is a candidate; internal, mode 0600."""
    write_json(_outcome(release, home), json.loads(json.dumps(content, default=str)))


@step("publish", "publish {charge.release}, finished before")
def publish_finished(
    request: ResolvedRequest, charge: ReservedRelease, home: Home
) -> dict[str, Any]:
    """The outcome of a release that an earlier run finished, with its files at ``out``.

    Raises:
        VerificationError: its files are not what was recorded.
        InputError: it was drawn with other options than those of this request.
    """
    content = finished_outcome(charge.release, home)
    public = home.release(charge.release) / "public"
    _require_same(request, content, public, charge.release)
    out = request.out_path
    if out and not (out.is_dir() and digest_of(out) == digest_of(public)):
        copy_whole(public, out, charge.release)
    if request.database:
        load_release(request, request.database, charge.release, public)
    status = open_ledger(home).budget(content["dataset"], public_context_of(request).unit)
    internal = str(home.release(charge.release) / "internal")
    files = {"public": str(out or public), "internal": internal}
    files |= {"database": request.database} if request.database else {}
    return content | {"files": files, "earlier": True, "budget_left": decimal_below(status.left)}


@step("write", "write spec of {charge.release}, finished before")
def write_finished(request: ResolvedRequest, charge: ReservedRelease, home: Home) -> dict[str, Any]:
    """The outcome of a measurement that an earlier run finished, with its spec at ``out``.

    Raises:
        VerificationError: its files are not what was recorded.
    """
    content = finished_outcome(charge.release, home)
    spec = home.release(charge.release) / "public" / SPEC_NAME
    out = request.out_path or spec
    if not out.exists():
        replace_file(out, lambda part: part.write_bytes(spec.read_bytes()))
    return content | {"spec": str(out), "earlier": True}


def finished_outcome(release: str, home: Home) -> dict[str, Any]:
    """The outcome of a finished release, after a check of its files.

    Raises:
        VerificationError: they are not, or it cannot be read.
    """
    remedy = (
        f"release {release} is finished and was charged; see cloister verify {release}, or reject "
        "it and start anew"
    )
    findings = release_problems(home, release)
    if findings:
        raise VerificationError(f"{findings[0]}; {remedy}")
    try:
        content: dict[str, Any] = json.loads(_outcome(release, home).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise VerificationError(f"{_outcome(release, home)} cannot be read; {remedy}") from None
    return content


@contextmanager
def confirm_delivery(home: Home, by: str) -> Iterator[None]:
    """Record releases that end inside as delivered, once the block has ended well."""
    ended: list[str] = []
    token = _ended.set(ended)
    try:
        yield
    finally:
        _ended.reset(token)
    sys.stdout.flush()
    for release in ended:
        open_ledger(home).deliver(release, by)


def deliver(release: str, by: str, home: Home) -> None:
    """Record that a finished release was reported: the last act of a flow.

    Inside ``confirm_delivery`` this waits until the block has ended well.
    """
    if (waiting := _ended.get()) is None:
        open_ledger(home).deliver(release, by)
    else:
        waiting.append(release)


def _require_same(
    request: ResolvedRequest, content: dict[str, Any], public: Path, release: str
) -> None:
    asked = {
        "--rows": request.rows == content["rows"],
        "--csv": not request.csv or any(public.glob("*.csv")),
    }
    differing = [option for option, same in asked.items() if not same]
    if differing:
        raise InputError(
            f"release {release} of the same request is finished, with "
            f"{count_of(content['rows'], 'row')}, and "
            f"was not reported; give {' and '.join(differing)} as before to get it at no charge, "
            f"or cloister review reject {release} first"
        )


def _outcome(release: str, home: Home) -> Path:
    return home.release(release) / "internal" / "outcome.json"
