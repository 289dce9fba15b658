"""How others are notified of releases: a webhook with an HMAC, and a mail that lists several.

Webhooks follow Standard Webhooks, so that its verifiers accept them: the id of a message is the
same however often it is sent. A message holds what the entry of the ledger says, without reasons,
which are free text, and never a value of the data.

Source: Standard Webhooks (github.com/standard-webhooks/standard-webhooks: spec).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import smtplib
import ssl
import time
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate
from shlex import quote
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import httpx

from cloister.errors import InputError, StorageError
from cloister.figures import count_of
from cloister.privacy.ledger.outbox import ReleaseEvent
from cloister.schema.sources import files_and_urls
from cloister.version import __version__

PATIENCE = 10.0
"""Seconds that a receiver may take to answer: releases that are due wait for it."""

SECRET_PREFIX = "whsec_"  # noqa: S105 - how secrets of webhooks begin
"""How the secret of a webhook begins; base64 of its bytes follows."""

SECRET_BYTES = range(24, 65)
"""How many bytes it may have."""

_PORTS = MappingProxyType({"smtp": 587, "smtps": 465})
"""Where servers of mail listen, unless an address names a port."""


def require_webhook(url: str) -> None:
    """Check that a URL can be that of a webhook.

    Raises:
        InputError: it is not one, is not encrypted in transit, or holds a password.
    """
    parts = _split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url} is no address of a webhook; give https://HOST/PATH")
    if parts.password or parts.username:
        raise InputError("a webhook's URL holds a password, which lists would show; leave it out")
    if parts.scheme == "http" and not files_and_urls.is_loopback(parts.hostname):
        raise InputError(
            f"{url} would send without encryption; give https://, or a host on loopback"
        )


def require_server(url: str) -> None:
    """Check that a URL can be that of a mail server.

    Raises:
        InputError: it is not one, or holds a password.
    """
    parts = _split(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise InputError("mail needs a server: --smtp smtps://USER@HOST, or smtp://HOST:PORT")
    if parts.password:
        raise InputError("--smtp holds a password, which lists would show; give --secret-file")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InputError("a URL that was given cannot be read; correct it") from None
    return parts


def body_of(event: ReleaseEvent) -> bytes:
    """The body of a webhook."""
    data = {
        "release": event.release or None,
        "dataset": event.dataset,
        "state": event.kind,
        "by": event.by,
        "entry": {"seq": event.seq, "hash": event.hash},
    }
    content = {"type": f"release.{event.kind}", "timestamp": event.time, "data": data}
    return json.dumps(content, separators=(",", ":")).encode()


def signature_headers(secret: str, message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove to a receiver who sent a body, and when."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = hmac.digest(key, f"{message}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode('ascii')}",
    }


def post(url: str, secret: str, event: ReleaseEvent) -> None:
    """Send an event to a webhook, which is not redirected.

    Raises:
        StorageError: it did not take the event.
    """
    body = body_of(event)
    headers: dict[str, Any] = signature_headers(secret, event.id, int(time.time()), body)
    headers |= {"content-type": "application/json", "user-agent": f"cloister/{__version__}"}
    try:
        with httpx.stream(
            "POST", url, content=body, headers=headers, timeout=PATIENCE, follow_redirects=False
        ) as answer:
            status = answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise StorageError(f"{url} cannot be reached ({type(error).__name__})") from None
    if not 200 <= status < 300:
        raise StorageError(f"{url} answered with status {status}")


def mail(
    recipients: str, server: str, password: str, sender: str, events: Sequence[ReleaseEvent]
) -> None:
    """Send one mail that lists events; the same events have the same ``Message-ID``.

    It is encrypted in transit, except to a server on loopback.

    Raises:
        StorageError: the server did not take it.
    """
    parts, context = urlsplit(server), ssl.create_default_context()
    host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    letter = _letter(recipients, sender or _sender(parts), events)
    try:
        with (
            smtplib.SMTP_SSL(host, port, timeout=PATIENCE, context=context)
            if parts.scheme == "smtps"
            else smtplib.SMTP(host, port, timeout=PATIENCE)
        ) as session:
            if parts.scheme == "smtp" and not files_and_urls.is_loopback(host):
                session.starttls(context=context)
            if parts.username:
                session.login(unquote(parts.username), password)
            session.send_message(letter)
    except (smtplib.SMTPException, OSError) as error:
        raise StorageError(
            f"{host}:{port} did not accept the mail ({type(error).__name__})"
        ) from None


def _letter(recipients: str, sender: str, events: Sequence[ReleaseEvent]) -> EmailMessage:
    kinds = ", ".join(dict.fromkeys(event.kind for event in events))
    ids = " ".join(event.id for event in events)
    letter = EmailMessage()
    letter["From"], letter["To"] = sender, recipients
    letter["Subject"] = f"Cloister: {count_of(len(events), 'event')} ({kinds})"
    letter["Date"] = formatdate()
    letter["Message-ID"] = f"<{hashlib.sha256(ids.encode()).hexdigest()[:32]}@cloister>"
    letter["Auto-Submitted"] = "auto-generated"
    lines = [
        f"{event.time[:19]}Z  {event.dataset}: "
        f"{event.release or 'a request'} {event.kind} by {event.by}  [{event.id}]"
        for event in events
    ]
    commands = dict.fromkeys(map(_why, events))
    letter.set_content("\n".join([*lines, "", "Why, in the home:", *commands]))
    return letter


def _why(event: ReleaseEvent) -> str:
    """The command that says more of an event."""
    if event.release:
        return f"cloister ledger show {event.release}"
    return f"cloister ledger list {quote(event.dataset)} --declined"


def _sender(parts: SplitResult) -> str:
    user = unquote(parts.username or "cloister")
    return user if "@" in user else f"{user}@{parts.hostname}"
