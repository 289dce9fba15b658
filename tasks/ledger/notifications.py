"""Who is notified of releases, and what each subscriber has been sent: stored in the home.

The entries of the ledger are the outbox (`cloister/privacy/ledger/outbox.py`). The changing state,
how far each subscriber is and what to retry, is not part of the ledger: it is in a file of each
subscriber, so that no table is added to a database whose guards are compared word by word, and
which a home's login may be unable to change. A file is written before and after each sending: a
process that is killed in between sends the event again, with the same id. Nothing here is part of a
release: failures are retried at growing delays, and finally given up.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cloister.errors import CloisterError, InputError, StorageError
from cloister.figures import count_of
from cloister.privacy.ledger.outbox import EVENTS, ReleaseEvent, events_after
from cloister.tasks.home.files import exclusive, read_sealed, replace_file, write_sealed
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.ledger import channels
from cloister.tasks.ledger.access import existing_ledger

_MAIL = "mailto:"

_DELAYS = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds before each further try: more than three days in all, as Standard Webhooks advises."""

_LONGEST = 30.0
"""Seconds after which a sending starts nothing more for a subscriber; the next one continues."""


@dataclass(frozen=True)
class Waiting:
    """An event to be sent: how often it was tried, when it is due, what went wrong last."""

    event: ReleaseEvent
    tries: int = 0
    due: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Subscriber:
    """Who is notified: a webhook's URL, or ``mailto:`` with addresses, and the kinds of events.

    ``secret`` is a webhook's, or the password at the mail server ``smtp``. ``seen`` is the number
    of the last entry examined, ``dead`` what was tried too often.
    """

    address: str
    events: tuple[str, ...]
    secret: str
    smtp: str = ""
    sender: str = ""
    seen: int = 0
    waiting: tuple[Waiting, ...] = ()
    dead: tuple[Waiting, ...] = ()

    def send(self, events: Sequence[ReleaseEvent]) -> None:
        """Send events: to a webhook one, by mail any number at once.

        Raises:
            StorageError: they were not taken.
        """
        if self.address.startswith(_MAIL):
            recipients = self.address.removeprefix(_MAIL)
            channels.mail(recipients, self.smtp, self.secret, self.sender, events)
            return
        (event,) = events
        channels.post(self.address, self.secret, event)

    def batches(self, now: float) -> list[list[Waiting]]:
        """What is due, in groups that are sent together."""
        due = [waiting for waiting in self.waiting if waiting.due <= now]
        if self.address.startswith(_MAIL):
            return [due] if due else []
        return [[waiting] for waiting in due]


_FORM = TypeAdapter(Subscriber)


def subscribe(home: Home, subscriber: Subscriber) -> None:
    """Notify somebody of what happens from now on; replaces a subscriber of the same address.

    Raises:
        InputError: the address, the server or an event cannot be used.
    """
    unknown = [name for name in subscriber.events if name not in EVENTS]
    if unknown or not subscriber.events:
        raise InputError(f"--events takes {', '.join(EVENTS)}, separated by commas")
    if subscriber.address.startswith(_MAIL):
        recipients = subscriber.address.removeprefix(_MAIL)
        if "@" not in recipients or not recipients.isprintable():
            raise InputError("give mailto:NAME@HOST, with commas between several")
        channels.require_server(subscriber.smtp)
    else:
        channels.require_webhook(subscriber.address)
    ledger = existing_ledger(home)
    last = ledger.anchor() if ledger else None
    with _alone(home):
        _write(home, replace(subscriber, seen=last.seq if last else 0))


def unsubscribe(home: Home, address: str) -> None:
    """Stop notifying somebody.

    Raises:
        InputError: there is no subscriber of this address.
    """
    with _alone(home):
        try:
            _path(home, address).unlink()
        except FileNotFoundError:
            raise _unknown(address) from None


def find_subscriber(home: Home, address: str) -> Subscriber:
    """The subscriber of an address.

    Raises:
        InputError: there is none.
        StorageError, VerificationError: the file cannot be read, or was altered.
    """
    path = _path(home, address)
    if not path.exists():
        raise _unknown(address)
    return _read(path, home)


def subscribers(home: Home) -> list[Subscriber]:
    """All subscribers.

    Raises:
        StorageError, VerificationError: a file cannot be read, or was altered.
    """
    return [_read(path, home) for path in _files(home)]


def read_secret(path: Path | None, *, webhook: bool) -> str:
    """The secret in a file that only its owner reads; that of a webhook is made if missing.

    Raises:
        InputError: it cannot be used.
        StorageError: it cannot be read or made.
    """
    if path is None:
        if webhook:
            raise InputError("a webhook needs a secret that its receiver has: --secret-file FILE")
        return ""
    if webhook and not path.exists():
        fresh = channels.SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode("ascii")
        replace_file(path, lambda part: part.write_text(f"{fresh}\n", encoding="ascii"))
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read ({type(error).__name__})") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InputError(f"{path} can be read by others; run chmod 600, or make another secret")
    if webhook and not _is_secret(text):
        raise InputError(
            f"{path} is no secret of a webhook: {channels.SECRET_PREFIX} and base64 follow"
        )
    return text


def _is_secret(text: str) -> bool:
    try:
        key = base64.b64decode(text.removeprefix(channels.SECRET_PREFIX), validate=True)
    except ValueError:
        return False
    return text.startswith(channels.SECRET_PREFIX) and len(key) in channels.SECRET_BYTES


def made_up_event() -> ReleaseEvent:
    """An event that says that nothing happened."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return ReleaseEvent(0, secrets.token_hex(32), "test", now, "cloister", "", "")


def send_due(home: Home, *, dead: bool = False) -> list[str]:
    """Send what is due to all subscribers; what went wrong, in words.

    Nothing fails: what is not taken is retried. If another process is sending, this does nothing.

    Args:
        dead: what was given up is tried once more.
    """
    if not (home.folder / "notify").is_dir():
        return []
    with ExitStack() as alone:
        try:
            alone.enter_context(_alone(home, "another process sends"))
        except InputError as error:
            return [str(error)] if isinstance(error, StorageError) else []
        try:
            return list(_send_all(home, dead))
        except (CloisterError, OSError) as error:
            return [f"not all were told of releases: {error}"]


def _send_all(home: Home, dead: bool) -> Iterator[str]:
    ledger = existing_ledger(home)
    for path in _files(home) if ledger else ():
        assert ledger is not None
        try:
            subscriber = _read(path, home)
        except CloisterError as error:
            yield f"one subscriber is told nothing: {error}"
            continue
        events, seen = events_after(ledger, subscriber.seen)
        new = [Waiting(event) for event in events if event.kind in subscriber.events]
        again = [replace(old, tries=0, due=0.0) for old in subscriber.dead] if dead else []
        left = () if dead else subscriber.dead
        current = replace(
            subscriber, seen=seen, waiting=(*subscriber.waiting, *again, *new), dead=left
        )
        if current != subscriber:
            _write(home, current)
        until = time.monotonic() + _LONGEST
        for batch in current.batches(time.time()):
            if time.monotonic() > until:
                break
            current, problem = _sent(current, batch)
            _write(home, current)
            if problem:
                yield problem
                break  # what else is due there is tried by the next sending


def _sent(subscriber: Subscriber, batch: Sequence[Waiting]) -> tuple[Subscriber, str]:
    """A subscriber after a try, and what went wrong with it."""
    ids = {waiting.event.id for waiting in batch}
    pending = tuple(waiting for waiting in subscriber.waiting if waiting.event.id not in ids)
    try:
        subscriber.send([waiting.event for waiting in batch])
    except StorageError as error:
        problem = str(error)
    else:
        return replace(subscriber, waiting=pending), ""
    tried = [replace(waiting, tries=waiting.tries + 1, problem=problem) for waiting in batch]
    given_up = [waiting for waiting in tried if waiting.tries > len(_DELAYS)]
    later = [
        replace(waiting, due=time.time() + _DELAYS[waiting.tries - 1])
        for waiting in tried
        if waiting.tries <= len(_DELAYS)
    ]
    after = replace(subscriber, waiting=(*pending, *later), dead=(*subscriber.dead, *given_up))
    what = "given up" if given_up else "tried again later"
    events = count_of(len(batch), "event")
    return after, f"{subscriber.address} was not told of {events}: {problem}; {what}"


def _alone(home: Home, otherwise: str = "") -> AbstractContextManager[None]:
    return exclusive(private_folder(home.folder / "notify") / "lock", otherwise)


def _unknown(address: str) -> InputError:
    return InputError(f"nobody is told at {address}; see cloister notify list")


def _files(home: Home) -> list[Path]:
    return sorted((home.folder / "notify").glob("*.json"))


def _path(home: Home, address: str) -> Path:
    return home.folder / "notify" / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.json"


def _read(path: Path, home: Home) -> Subscriber:
    content, _ = read_sealed(path, home)
    try:
        return _FORM.validate_python(content)
    except ValidationError as error:
        raise StorageError(
            f"{path} cannot be read ({type(error).__name__}); remove it, and cloister notify add "
            "again"
        ) from None


def _write(home: Home, subscriber: Subscriber) -> None:
    content = _FORM.dump_python(subscriber, mode="json")
    write_sealed(_path(home, subscriber.address), content, home)
