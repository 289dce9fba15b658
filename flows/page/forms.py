"""Forms of the page: to log in and out, attack and decide on releases, grant, confirm, verify.

A form does what the command of the same name does, on behalf of whoever is logged in; the ledger
decides whether they may.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Form, HTTPException, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import StringConstraints

from cloister.errors import InputError
from cloister.flows.page import visitors
from cloister.flows.page.sheets import show
from cloister.flows.review import move_release
from cloister.privacy.ledger import BudgetGrant
from cloister.privacy.ledger.governance import allow_run, confirm
from cloister.tasks.ledger.access import open_ledger, release_of
from cloister.tasks.ledger.budgets import grant_budget
from cloister.tasks.release.reports import CandidateAttack
from cloister.tasks.release.verify import verify_records
from cloister.tasks.stores.prefect_registration import is_published_on_approval

Deciding = Annotated[visitors.Visit, Depends(visitors.home_visit_of)]
ReleaseId = Annotated[str, Path(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
AccountName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Reason = Annotated[str, Form(min_length=1, max_length=2000)]
Amount = Annotated[str, Form(min_length=1, max_length=100)]
Account = Annotated[str, StringConstraints(max_length=100)]
Move = Literal["approved", "rejected", "published", "withdrawn"]


entrance = APIRouter()
"""To log in and out."""

decisions = APIRouter(prefix="/homes/{home}", dependencies=[Depends(visitors.require_own_form)])
"""What officers and reviewers decide."""


@entrance.get("/login", response_class=HTMLResponse)
def door(key: str = "") -> Response:
    """The door, where visitors show a key or a token."""
    return show("login.html", None, {"shown": key[:500], "problem": ""})


@entrance.post("/login", response_class=HTMLResponse)
def enter(request: Request, shown: Annotated[str, Form(max_length=10_000)]) -> Response:
    """Begin a session, for who shows a key or a token."""
    visitors.require_same_origin(request)
    sessions: visitors.Sessions = request.app.state.sessions
    if not sessions.admits_attempt(request.client.host if request.client else ""):
        raise HTTPException(429, "too many attempts; wait a minute", {"Retry-After": "60"})
    try:
        secret, _ = sessions.open(shown)
    except InputError as error:
        return show("login.html", None, {"shown": "", "problem": str(error)}, 401)
    response = RedirectResponse("/", 303)
    visitors.keep_session(request, response, secret)
    return response


@entrance.post("/logout", dependencies=[Depends(visitors.require_own_form)])
def leave(request: Request) -> Response:
    """End the session."""
    request.app.state.sessions.close(request.cookies.get(visitors.SESSION_COOKIE))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(visitors.SESSION_COOKIE)
    return response


@decisions.post("/releases/{release}/attack")
def attack(visit: Deciding, release: ReleaseId, reason: Reason) -> Response:
    """Record a look at a candidate, and begin to attack it by its data; its sheet shows the end."""
    home, check = visit.sheets.home, visit.sheets.attacks[release_of(visit.sheets.home, release).id]
    if check.running:
        raise InputError(f"release {release} is attacked already; its sheet shows the end")
    begun = CandidateAttack.begin(home, release, None, visit.by, _words(reason))
    check.begin(visit.who, lambda: ([str(begun.write_page())], []))
    return _back(visit, f"releases/{release}#attack")


@decisions.post("/releases/{release}/{move}")
def decide(
    visit: Deciding,
    release: ReleaseId,
    move: Move,
    reason: Reason,
    same_data: Annotated[list[Account] | None, Form()] = None,
) -> Response:
    """Approve, reject, publish or withdraw a release.

    One that was deployed to be published once approved is published too. An officer who approves
    ticks the other accounts that read the same data.
    """
    home, seen = visit.sheets.home, same_data or ()
    now = move_release(home, release, move, visit.by, _words(reason), same_data=seen)
    account = release_of(home, release).request.dataset
    if now == "approved" and is_published_on_approval(home, account):
        move_release(home, release, "published", visit.by, reason)
    return _back(visit, f"releases/{release}")


@decisions.post("/accounts/{account}/grant")
def grant(
    visit: Deciding,
    account: AccountName,
    epsilon: Amount,
    delta: Amount,
    per: Annotated[Literal["year", "month", "ever"], Form()],
    unit: Annotated[str, Form(min_length=1, max_length=205)],
    reason: Reason,
    sure: Annotated[bool, Form()] = False,
) -> Response:
    """Grant a budget, in place of the one before."""
    budget = BudgetGrant.of(account, unit, epsilon, delta, per)
    grant_budget(visit.sheets.home, budget, visit.by, _words(reason), confirmed=sure)
    return _back(visit, f"accounts/{account}")


@decisions.post("/accounts/{account}/allow")
def allow(visit: Deciding, account: AccountName, reason: Reason) -> Response:
    """Allow the next runs of an account whose data was refused too often."""
    allow_run(open_ledger(visit.sheets.home), account, visit.by, _words(reason))
    return _back(visit, f"accounts/{account}")


@decisions.post("/proposals/{seq}/confirm")
def second(visit: Deciding, seq: Annotated[int, Path(ge=1, le=10**12)], reason: Reason) -> Response:
    """Confirm what another officer proposed."""
    confirm(open_ledger(visit.sheets.home), seq, visit.by, _words(reason))
    return _back(visit, "people")


@decisions.post("/ledger/verify")
def verify(visit: Deciding) -> Response:
    """Begin to verify the home; the sheet of the ledger shows the end."""
    visit.sheets.check.begin(visit.who, partial(verify_records, visit.sheets.home, None))
    return _back(visit, "ledger")


def _words(reason: str) -> str:
    """A reason as the command line takes it.

    Raises:
        InputError: it is blank, or holds line breaks or control characters.
    """
    if not (reason.isprintable() and reason.strip()):
        raise InputError("say why in a few words, without line breaks and control characters")
    return reason


def _back(visit: visitors.Visit, sheet: str) -> Response:
    return RedirectResponse(f"/homes/{visit.home}/{sheet}", 303)
