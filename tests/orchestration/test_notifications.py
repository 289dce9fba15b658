"""Who is told of releases: webhooks that stock verifiers read, mail, and nobody twice unawares."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_requests import ask
from listeners import Listener, mail_sink, silent_listener, text_of, webhook_receiver
from quick_release import quick_release

from cloister.errors import InputError, NotPermitted, StorageError, VerificationError
from cloister.flows.cli.app import run
from cloister.privacy.ledger import Ledger, State
from cloister.privacy.ledger.governance import change_person, decline
from cloister.privacy.ledger.outbox import EVENTS, events_after
from cloister.tasks.home.home import Home
from cloister.tasks.ledger import channels, notifications
from cloister.tasks.ledger.access import open_ledger
from cloister.tasks.ledger.notifications import (
    Subscriber,
    read_secret,
    send_due,
    subscribe,
    subscribers,
)


def late_imports():
    global notify
    from cloister.flows.serving import notify


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    return Home.current()


@pytest.fixture
def ledger(home: Home) -> Ledger:
    ledger = open_ledger(home)
    ledger.grant("adult", "row", 3, "1e-6", "year", "officer", "yearly budget")
    return ledger


@pytest.fixture
def receiver() -> Iterator[Listener]:
    with webhook_receiver() as listener:
        yield listener


@pytest.fixture
def sink() -> Iterator[Listener]:
    with mail_sink() as listener:
        yield listener


@pytest.fixture
def secret(tmp_path: Path) -> str:
    return read_secret(tmp_path / "hook.secret", webhook=True)


@pytest.fixture
def url(home: Home, ledger: Ledger, receiver: Listener, secret: str) -> str:
    """A webhook that is told of everything."""
    url = f"http://127.0.0.1:{receiver.port}/cloister"
    subscribe(home, Subscriber(url, EVENTS, secret))
    return url


def candidate(ledger: Ledger) -> str:
    release = ledger.reserve(ask(epsilon="1/100"), "flow").release.id
    ledger.spend(release, "flow", "journal-1", "data-1")
    ledger.advance(release, State.CANDIDATE, "flow", "the release flow ended", {})
    return release


def test_a_release_and_a_request_that_was_declined_are_told_by_signed_webhooks(
    home, ledger, url, receiver, secret
):
    ledger.advance(candidate(ledger), State.APPROVED, "A. Officer", "row 7 of Mr X is fine")
    decline(ledger, ask(epsilon=50), "engineer", "why not")
    assert send_due(home) == []
    assert send_due(home) == []  # nothing is told twice
    entries = {entry.seq: entry for entry in ledger.entries()}
    told = [each.content for each in receiver.received]
    kinds = ("candidate", "approved", "declined")
    assert [each["type"] for each in told] == [f"release.{kind}" for kind in kinds]
    for each, delivery in zip(told, receiver.received, strict=True):
        entry = entries[each["data"]["entry"]["seq"]]
        assert each["timestamp"] == entry.time
        assert each["data"] == {
            "release": entry.body.get("release"),
            "dataset": "adult",
            "state": entry.kind,
            "by": entry.body["by"],
            "entry": {"seq": entry.seq, "hash": entry.hash},
        }
        assert delivery.is_signed_by(secret)
        assert not delivery.is_signed_by("whsec_" + "A" * 32)
        assert abs(int(delivery.headers["webhook-timestamp"]) - time.time()) < 300
        assert delivery.id == f"{entry.seq}-{entry.hash[:32]}"
    assert ledger.verify() == []


def test_what_was_before_and_what_was_not_asked_for_is_not_told(home, ledger, receiver, secret):
    release = candidate(ledger)
    address = f"http://127.0.0.1:{receiver.port}"
    subscribe(home, Subscriber(address, ("withdrawn", "declined"), secret))
    ledger.advance(release, State.APPROVED, "A. Officer", "fine")
    ledger.advance(release, State.WITHDRAWN, "A. Officer", "not fine")
    assert send_due(home) == []
    assert [each.content["type"] for each in receiver.received] == ["release.withdrawn"]


def test_one_mail_lists_all_that_is_new(home, ledger, sink):
    server = f"smtp://127.0.0.1:{sink.port}"
    wanted = ("candidate", "declined")
    subscribe(home, Subscriber("mailto:officer@example.org", wanted, "", server))
    release = candidate(ledger)
    decline(ledger, ask(epsilon=50), "engineer", "")
    assert send_due(home) == []
    assert send_due(home) == []
    (letter,) = sink.received
    assert letter["Subject"] == "Cloister: 2 events (candidate, declined)"
    assert (letter["From"], letter["To"]) == ("cloister@127.0.0.1", "officer@example.org")
    assert f"adult: {release} candidate by flow" in text_of(letter)
    assert "adult: a request declined by engineer" in text_of(letter)
    assert "cloister ledger list adult --declined" in text_of(letter)
    assert "the release flow ended" not in text_of(letter)


@pytest.mark.parametrize("way", ["webhook", "mail"])
def test_who_is_killed_between_sending_and_noting_it_sends_again_with_the_same_id(
    home, ledger, receiver, sink, secret, monkeypatch, way
):
    address, listener, smtp = {
        "webhook": (f"http://127.0.0.1:{receiver.port}", receiver, ""),
        "mail": ("mailto:o@example.org", sink, f"smtp://127.0.0.1:{sink.port}"),
    }[way]
    subscribe(home, Subscriber(address, EVENTS, secret if way == "webhook" else "", smtp))
    candidate(ledger)
    pid = os.fork()
    if pid == 0:
        send = Subscriber.send

        def killed(self, events):
            send(self, events)
            os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(Subscriber, "send", killed)
        send_due(home)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert send_due(home) == []
    first, second = listener.received
    name = "webhook-id" if way == "webhook" else "Message-ID"
    ids = [each.headers[name] if way == "webhook" else each[name] for each in (first, second)]
    assert ids[0] == ids[1]
    assert send_due(home) == [] and len(listener.received) == 2


def test_what_is_not_taken_is_tried_later_and_given_up_in_the_end(
    home, ledger, url, receiver, monkeypatch, capsys
):
    now = time.time()
    monkeypatch.setattr(notifications.time, "time", lambda: now)
    receiver.answers = [500, 302, *[503] * 8]
    candidate(ledger)
    waits = []
    for _ in range(len(receiver.answers)):
        (problem,) = send_due(home)
        assert url in problem and "status" in problem
        assert send_due(home) == []  # not yet
        (told,) = subscribers(home)
        if told.waiting:
            waits.append(told.waiting[0].due - now)
            now = told.waiting[0].due
    assert waits == sorted(waits) and 3 * 86_400 < sum(waits) < 5 * 86_400
    assert len({each.id for each in receiver.received}) == 1
    assert run(["notify", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["waiting"] == []
    (dead,) = listed["given_up"]
    assert (dead["event"], dead["tries"]) == ("candidate", 10) and "503" in dead["problem"]
    assert run(["notify", "send", "--dead"]) == 0
    assert len(receiver.received) == 11
    assert subscribers(home)[0].dead == ()


def test_a_subscriber_that_was_altered_keeps_nobody_else_from_being_told(
    home, ledger, url, receiver, secret
):
    subscribe(home, Subscriber("http://127.0.0.1:9/", EVENTS, secret))
    path = notifications._path(home, "http://127.0.0.1:9/")
    path.write_text(path.read_text().replace("127.0.0.1:9/", "127.0.0.1:8/"))
    candidate(ledger)
    (problem,) = send_due(home)
    assert f"{path} was altered; remove it and run cloister notify add again" in problem
    assert len(receiver.received) == 1
    with pytest.raises(VerificationError, match="was altered"):
        subscribers(home)


def test_a_receiver_that_is_down_keeps_nobody_else_from_being_told(home, ledger, url, secret):
    subscribe(home, Subscriber("http://127.0.0.1:9/", EVENTS, secret))
    candidate(ledger)
    (problem,) = send_due(home)
    assert problem.startswith("http://127.0.0.1:9/ was not told of 1 event")
    waiting = {each.address: len(each.waiting) for each in subscribers(home)}
    assert waiting == {url: 0, "http://127.0.0.1:9/": 1}
    last = ledger.anchor().seq  # a ledger that was restored from before is followed from its end
    assert events_after(ledger, last + 50) == ([], last)


def test_who_may_not_reserve_is_not_declined_but_refused(ledger):
    def officer(person):
        return type(person)(person.name, ("officer",), ("officer",))

    change_person(ledger, "A. Officer", officer, "officer", "mandate 3")
    with pytest.raises(NotPermitted, match="engineer"):
        decline(ledger, ask(epsilon=50), "stranger", "")


@pytest.mark.parametrize(
    ("address", "smtp", "said"),
    [
        ("http://example.org/hook", "", "without encryption"),
        ("https://anna:word@example.org/hook", "", "password"),
        ("ftp://example.org", "", "no address of a webhook"),
        ("https://[", "", "cannot be read"),
        ("mailto:nobody", "smtps://example.org", "mailto:NAME@HOST"),
        ("mailto:o@example.org", "", "needs a server"),
        ("mailto:o@example.org", "smtps://anna:word@example.org", "secret-file"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(home, secret, address, smtp, said):
    with pytest.raises(InputError, match=said):
        subscribe(home, Subscriber(address, EVENTS, secret, smtp))
    assert subscribers(home) == []


def test_secrets_are_made_for_their_owner_alone_and_never_shown(home, tmp_path, capsys):
    path, address = tmp_path / "fresh.secret", "https://hooks.example.org/cloister"
    assert run(["notify", "add", address, "--secret-file", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    (kept,) = (home.folder / "notify").glob("*.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert run(["notify", "list"]) == 0
    said = capsys.readouterr()
    assert path.read_text().strip() not in said.out + said.err
    assert run(["notify", "remove", address]) == 0
    assert run(["notify", "remove", address]) == 2
    path.chmod(0o644)
    assert run(["notify", "add", address, "--secret-file", str(path)]) == 2
    assert "chmod 600" in capsys.readouterr().err
    path.chmod(0o600)
    path.write_text("whsec_c2hvcnQ=")
    assert run(["notify", "add", address, "--secret-file", str(path)]) == 2
    assert run(["notify", "add", address]) == 2


def test_a_webhook_is_tried_by_a_command(url, receiver, secret, capsys):
    assert run(["notify", "test", url]) == 0
    (delivery,) = receiver.received
    assert delivery.content["type"] == "release.test" and delivery.is_signed_by(secret)
    receiver.answers = [401]
    assert run(["notify", "test", url]) != 0
    assert "401" in capsys.readouterr().err


def test_a_mail_server_elsewhere_is_spoken_to_in_secret_alone(sink, monkeypatch):
    """One that offers no TLS gets neither password nor mail."""
    monkeypatch.setattr(channels.files_and_urls, "is_loopback", lambda _: False)
    event = notifications.made_up_event()
    with pytest.raises(StorageError, match="did not accept the mail"):
        channels.mail("o@example.org", f"smtp://a@127.0.0.1:{sink.port}", "word", "", [event])
    assert sink.received == []


def test_a_request_that_the_budget_does_not_hold_is_told(
    place, prefect_server, receiver, secret, capsys
):
    subscribe(place.home, Subscriber(f"http://127.0.0.1:{receiver.port}", EVENTS, secret))
    assert run(quick_release(place, "--epsilon", "5", "--purpose", "a test")) == 2
    (entry,) = open_ledger(place.home).entries()
    assert (entry.kind, entry.body["dataset"]) == ("declined", "clubs")
    assert entry.body["reason"] == "a test"
    assert run(["notify", "send"]) == 0
    assert [each.content["data"]["dataset"] for each in receiver.received] == ["clubs"]
    assert run(["verify"]) == 0


def test_what_fails_inside_fails_nobody_who_sends(home, ledger, url):
    (path,) = (home.folder / "notify").glob("*.json")
    path.write_text("{}")
    (problem,) = send_due(home)
    assert str(path) in problem and "cloister notify add" in problem


def test_a_home_that_cannot_be_written_is_told_of_and_tried_again(
    home, ledger, url, receiver, capsys
):
    """So that the thread of `serve` outlives a disk that is full, or read-only for a while."""
    candidate(ledger)
    lock = home.folder / "notify" / "lock"
    lock.unlink()
    lock.mkdir()
    notify(home)
    assert f"{lock} cannot be opened" in capsys.readouterr().err.replace("\n", "")
    assert receiver.received == []
    lock.rmdir()
    notify(home)
    assert [each.content["type"] for each in receiver.received] == ["release.candidate"]


@pytest.mark.parametrize("kind", ["http", "smtp"])
def test_a_receiver_that_never_answers_is_named(kind, monkeypatch):
    monkeypatch.setattr(channels, "PATIENCE", 0.2)
    event = notifications.made_up_event()
    with silent_listener() as port, pytest.raises(StorageError, match=f"127.0.0.1:{port}"):
        if kind == "http":
            channels.post(f"http://127.0.0.1:{port}", "whsec_c2hvcnQ=", event)
        else:
            channels.mail("o@example.org", f"smtp://127.0.0.1:{port}", "", "", [event])
