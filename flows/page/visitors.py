"""Who visits the page: how they are identified, what a session may do, and what is logged.

A visitor is known by the key that was printed at the start (whoever started the page), by a token
of ``cloister people token``, or by an identity provider's token that a proxy hands over in the
header ``Authorization``. Which person that is, and what they may do, the ledger decides.

Sessions are kept in memory: they end with the process.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Path, Request, Response

from cloister.errors import InputError, NotPermitted
from cloister.identities import identity_of, named, token_problem
from cloister.privacy.ledger.house import House
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.home.identity import identity

if TYPE_CHECKING:
    from cloister.flows.page.views import Sheets

SESSION_COOKIE = "cloister_session"

_SESSION_SECONDS = 8 * 3600.0
"""How long a session lasts: a working day."""

_MOST_SESSIONS = 10_000
"""Sessions in memory at most; the oldest ends where another begins."""

_PACE, _BURST = 20.0, 80.0
"""Requests a second that a session may make on average, and at once: a person's are below one."""

_LOGIN_PACE, _LOGIN_BURST = 0.2, 10.0
"""The same of attempts to log in from one address: a token has 256 bits, and is not guessed."""


@dataclass
class Bucket:
    """A token bucket: ``pace`` requests a second on average, ``burst`` at once."""

    pace: float
    burst: float
    left: float = field(init=False)
    filled: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.left = self.burst

    def take(self) -> bool:
        """Whether one more request may be made now."""
        now = time.monotonic()
        self.left = min(self.burst, self.left + (now - self.filled) * self.pace)
        self.filled = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass
class WebSession:
    """A visitor: the identity they showed, the secret of their forms, and how fast they ask.

    Of one ``by_proxy`` each request shows the identity again.
    """

    identity: str
    by_proxy: bool = False
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    began: float = field(default_factory=time.monotonic)
    bucket: Bucket = field(default_factory=lambda: Bucket(_PACE, _BURST))

    @property
    def over(self) -> bool:
        """Whether it has lasted too long."""
        return time.monotonic() - self.began > _SESSION_SECONDS

    def holds(self, csrf: str) -> bool:
        """Whether a form was made for this session."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    """The sessions of a page, by the secret of their cookies; safe to use from several threads."""

    def __init__(self, key: str | None) -> None:
        """``key`` lets in as whoever started the page; None where only tokens count."""
        self.key = key
        self._by_secret: dict[str, WebSession] = {}
        self._doors: dict[str, Bucket] = {}
        self._lock = Lock()

    def open(self, shown: str, *, by_proxy: bool = False) -> tuple[str, WebSession]:
        """A session of who shows a key or a token, and the secret of its cookie.

        Raises:
            InputError: it identifies nobody.
        """
        shown = shown.strip()
        if self.key is not None and hmac.compare_digest(self.key.encode(), shown.encode()):
            session = WebSession(identity())
        elif shown:
            session = WebSession(identity({**os.environ, "CLOISTER_TOKEN": shown}), by_proxy)
        else:
            raise InputError("show the key that was printed at the start, or a token")
        secret = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._by_secret) >= _MOST_SESSIONS:
                del self._by_secret[next(iter(self._by_secret))]
            self._by_secret[secret] = session
        return secret, session

    def find(self, secret: str | None) -> WebSession | None:
        """The session of a cookie, if it is one and has not ended."""
        session = self._by_secret.get(secret or "")
        if session and session.over:
            self.close(secret)
            return None
        return session

    def close(self, secret: str | None) -> None:
        """End a session."""
        with self._lock:
            self._by_secret.pop(secret or "", None)

    def admits_attempt(self, address: str) -> bool:
        """Whether somebody at an address may try to log in once more."""
        with self._lock:
            if len(self._doors) >= _MOST_SESSIONS:
                self._doors.clear()
            door = self._doors.setdefault(address, Bucket(_LOGIN_PACE, _LOGIN_BURST))
            return door.take()


def reading_problem(house: House, by: str) -> str | None:
    """Why somebody may not read a home; None if they may.

    Without people whoever can run commands in the home may; else whoever has a role.
    """
    person, now = house.person_of(by), datetime.now(UTC).isoformat()
    if problem := token_problem(identity_of(by), now, known=person is not None):
        return problem
    if not house.people or (person and person.roles):
        return None
    return f"{house.name_of(by)} has no role here: an officer sets it with cloister people set"


def note_visit(home: Home, by: str, method: str, path: str, status: int) -> None:
    """Write a visit to the home's list of this month: who read or did what, and when."""
    folder = private_folder(home.folder / "visits")
    visit = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": by,
        "method": method,
        "path": path,
        "status": str(status),
    }
    line = json.dumps(visit, ensure_ascii=True) + "\n"
    visits_file = folder / f"{visit['time'][:7]}.jsonl"
    file = os.open(visits_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode("ascii"))
    finally:
        os.close(file)


@dataclass(frozen=True)
class Visit:
    """A request of a known visitor; ``home`` is the name of the home it concerns, if any.

    ``name`` is what the visitor is called there, once the home was read.
    """

    session: WebSession
    home: str = ""
    home_sheets: Sheets | None = None
    name: str = ""

    @property
    def by(self) -> str:
        """Who acts."""
        return self.session.identity

    @property
    def who(self) -> str:
        """Who acts, for people to read."""
        return self.name or named("", self.by)

    @property
    def csrf(self) -> str:
        """The secret of the forms of this session."""
        return self.session.csrf

    @property
    def of_home(self) -> bool:
        """Whether it is of one home."""
        return self.home_sheets is not None

    @property
    def sheets(self) -> Sheets:
        """The sheets of the home."""
        assert self.home_sheets is not None
        return self.home_sheets


def visit_of(request: Request) -> Visit:
    """The visit of a request, by its session.

    Raises:
        HTTPException: 401 for nobody, 429 for too many requests.
    """
    session = _session_of(request)
    if not session.bucket.take():
        raise HTTPException(429, "too many requests; wait a moment", {"Retry-After": "5"})
    visit: Visit = Visit(session)
    request.state.visit = visit
    return visit


def home_visit_of(
    request: Request,
    visit: Annotated[Visit, Depends(visit_of)],
    home: Annotated[str, Path(max_length=100)],
) -> Visit:
    """The visit of a home, which the visitor may read.

    Raises:
        HTTPException: 404 for no home of this page.
        NotPermitted: the visitor may not read the home.
    """
    sheets = request.app.state.homes.get(home)
    if sheets is None:
        raise HTTPException(404, "this page has no such home")
    visit = request.state.visit = replace(visit, home=home, home_sheets=sheets)
    if problem := sheets.problem(visit.by):
        raise NotPermitted(problem)
    visit = request.state.visit = replace(visit, name=sheets.name_of(visit.by))
    return visit


def looking_visit_of(visit: Annotated[Visit, Depends(home_visit_of)]) -> Visit:
    """The visit of a home by somebody who may see attacks by its data, or its exact figures.

    Raises:
        NotPermitted: the visitor may not.
    """
    if problem := visit.sheets.looking_problem(visit.by):
        raise NotPermitted(problem)
    return visit


async def require_own_form(request: Request, visit: Annotated[Visit, Depends(visit_of)]) -> None:
    """Check that a form was made for its session, by this page.

    Raises:
        HTTPException: 403 for a form of another session or page.
    """
    require_same_origin(request)
    form = await request.form()
    if not visit.session.holds(str(form.get("csrf", ""))):
        raise HTTPException(403, "this form is of another session: open the sheet again")


def require_same_origin(request: Request) -> None:
    """Check that a form was sent by a sheet of this page.

    Raises:
        HTTPException: 403 if a browser says that it was not.
    """
    origin = request.headers.get("origin")
    try:
        sender = request.headers.get("host") if origin is None else urlsplit(origin).netloc
    except ValueError:  # as of http://[::1
        sender = ""
    if sender != request.headers.get("host"):
        raise HTTPException(403, "this form was sent from another page")


def _session_of(request: Request) -> WebSession:
    """The session of a cookie; if a proxy hands over a token, each request is identified by it."""
    sessions: Sessions = request.app.state.sessions
    session = sessions.find(request.cookies.get(SESSION_COOKIE))
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        try:
            shown = identity({**os.environ, "CLOISTER_TOKEN": token})
        except InputError as error:
            raise HTTPException(403, str(error)) from None
        if session is None or session.identity != shown:
            request.state.cookie, session = sessions.open(token, by_proxy=True)
    elif session is not None and session.by_proxy:
        session = None
    if session is None:
        raise HTTPException(401, "show a key or a token first, at /login")
    return session


def keep_session(request: Request, response: Response, secret: str) -> None:
    """Set the cookie of a session, which the browser sends to this page alone."""
    secure = request.url.scheme == "https"
    response.set_cookie(SESSION_COOKIE, secret, httponly=True, samesite="strict", secure=secure)
