"""The page as a web application: sheets to read, forms to decide, nothing that runs in a browser.

A policy forbids scripts; forms carry a secret of their session; every visit to a home is noted in
it. Errors of this project are shown as they are at the terminal, others by their type alone, since
a message of a library may quote the data.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from cloister import errors
from cloister.flows.cli.console import warn
from cloister.flows.page import visitors
from cloister.flows.page.forms import AccountName, ReleaseId, decisions, entrance
from cloister.flows.page.sheets import show
from cloister.flows.page.views import Sheets

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; frame-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""What a browser may do with each answer."""

_STATUS = (
    (errors.NotPermitted, 403),
    (errors.StorageError, 423),
    (errors.BudgetExceeded, 409),
    (errors.VerificationError, 409),
    (errors.InputError, 404),
    (errors.CloisterError, 409),
)
"""The status of an answer that is an error of this project; the first class that fits."""

Visiting = Annotated[visitors.Visit, Depends(visitors.visit_of)]
Reading = Annotated[visitors.Visit, Depends(visitors.home_visit_of)]
Looking = Annotated[visitors.Visit, Depends(visitors.looking_visit_of)]
Sheet = Annotated[int, Query(ge=1, le=10**6)]


doors = APIRouter()
"""What does not belong to a home."""

sheets = APIRouter(prefix="/homes/{home}")
"""The sheets of a home, and the files that they show."""


def page_app(
    homes: Mapping[str, Sheets], sessions: visitors.Sessions, hosts: Sequence[str]
) -> FastAPI:
    """The page of some homes, by name, for the given names of its host."""
    app = FastAPI(title="Cloister", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.homes, app.state.sessions = homes, sessions
    app.middleware("http")(_guarded)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.exception_handler(errors.CloisterError)(_explained)
    app.exception_handler(HTTPException)(_refused)
    app.exception_handler(RequestValidationError)(_unreadable)
    for router in (doors, entrance, sheets, decisions):
        app.include_router(router)
    return app


@doors.get("/page.css")
def style() -> Response:
    """The style of all sheets."""
    return Response(_style(), media_type="text/css", headers={"Cache-Control": "max-age=600"})


@doors.get("/", response_class=HTMLResponse)
def homes(request: Request, visit: Visiting) -> Response:
    """The homes; of one alone, its overview."""
    names = list(request.app.state.homes)
    if len(names) == 1:
        return RedirectResponse(f"/homes/{names[0]}", 303)
    return show("homes.html", visit, {"homes": names})


@sheets.get("", response_class=HTMLResponse)
def overview(visit: Reading) -> Response:
    """What waits for review, budgets, and what happened last."""
    return show("overview.html", visit, visit.sheets.overview())


@sheets.get("/releases", response_class=HTMLResponse)
def releases(
    visit: Reading,
    account: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    sheet: Sheet = 1,
) -> Response:
    """Releases, the last first."""
    return show("releases.html", visit, visit.sheets.releases(account, state, sheet))


@sheets.get("/releases/{release}", response_class=HTMLResponse)
def release(visit: Reading, release: ReleaseId) -> Response:
    """One release: its cost, its moves, and what to decide."""
    return show("release.html", visit, visit.sheets.release(release, visit.by))


@sheets.get("/releases/{release}/comparison", response_class=HTMLResponse)
def comparison(
    visit: Reading,
    release: ReleaseId,
    against: Annotated[str, Query(pattern=r"^[A-Za-z0-9._:-]{0,128}$")] = "",
) -> Response:
    """A release beside another of its account, by default the one before."""
    return show("comparison.html", visit, visit.sheets.comparison(release, against, visit.by))


@sheets.get("/accounts/{account}", response_class=HTMLResponse)
def account(visit: Reading, account: AccountName) -> Response:
    """One account: its budgets over time, grants and rules."""
    return show("account.html", visit, visit.sheets.account(account))


@sheets.get("/ledger", response_class=HTMLResponse)
def ledger(visit: Reading, before: Annotated[int, Query(ge=0, le=10**12)] = 0) -> Response:
    """The entries of the ledger, and whether it was verified."""
    facts = visit.sheets.entries(before) | {"check": visit.sheets.check}
    return show("ledger.html", visit, facts)


@sheets.get("/refusals", response_class=HTMLResponse)
def refusals(visit: Reading) -> Response:
    """Data that was refused, each time an answer about it."""
    return show("refusals.html", visit, visit.sheets.refusals())


@sheets.get("/people", response_class=HTMLResponse)
def people(visit: Reading) -> Response:
    """People, rules and proposals."""
    return show("people.html", visit, visit.sheets.people())


@sheets.get("/releases/{release}/certificate", response_class=HTMLResponse)
def certificate(visit: Reading, release: ReleaseId) -> Response:
    """The certificate of a release as it was signed."""
    text, policy = visit.sheets.certificate(release)
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


@sheets.get("/releases/{release}/report", response_class=HTMLResponse)
def report(visit: Looking, release: ReleaseId) -> Response:
    """The internal report of a release, column by column."""
    text, policy = visit.sheets.report(release)
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


@sheets.get("/releases/{release}/attacks", response_class=HTMLResponse)
def attacks(visit: Looking, release: ReleaseId) -> Response:
    """The internal page of attacks on a candidate by its data."""
    text, policy = visit.sheets.attacks_page(release)
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


@sheets.get("/releases/{release}/plots/{name:path}")
def plot(visit: Looking, release: ReleaseId, name: str) -> Response:
    """A plot of the internal evaluation."""
    return FileResponse(visit.sheets.plot(release, name), media_type="image/png")


@cache
def _style() -> bytes:
    return files("cloister.flows.page").joinpath("templates", "page.css").read_bytes()


async def _guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """An answer with the headers of the page; the visit is noted in its home."""
    try:
        response = await answer(request)
    except Exception as error:  # noqa: BLE001 - any message may quote the data
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} at {PurePath(frame.filename).name}:{frame.lineno}"
        warn(f"{request.method} {request.url.path[:300]}: unforeseen {where}")
        response = _failed(request, 500, f"unforeseen {where}; please report this")
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if cookie := getattr(request.state, "cookie", None):
        visitors.keep_session(request, response, cookie)
    visit: visitors.Visit | None = getattr(request.state, "visit", None)
    if visit and visit.of_home:
        path = request.url.path[:300]
        visitors.note_visit(
            visit.sheets.home, visit.session.identity, request.method, path, response.status_code
        )
    return response


def _explained(request: Request, error: Exception) -> Response:
    status = next(code for kind, code in _STATUS if isinstance(error, kind))
    return _failed(request, status, str(error))


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 401 and request.method == "GET":
        return RedirectResponse("/login", 303)
    return _failed(request, error.status_code, str(error.detail), error.headers)


def _unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    named = ", ".join(str(detail["loc"][-1]) for detail in error.errors())
    return _failed(request, 422, f"what was given for {named} cannot be used")


def _failed(
    request: Request, status: int, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    visit: visitors.Visit | None = getattr(request.state, "visit", None)
    facts: dict[str, Any] = {"status": status, "message": message}
    return show("error.html", visit, facts, status, headers)
