"""The officer's page: who may read and decide, forms, hostile texts, a locked ledger, a browser."""

import json
import sqlite3
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
import uvicorn
from browser import Browser, require_browser
from hypothesis import HealthCheck, Phase, given, settings
from ledger_requests import ask

from cloister.privacy.ledger import State
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity
from cloister.tasks.ledger.access import open_ledger, release_of
from cloister.tasks.ledger.budgets import budgets
from cloister.tasks.ledger.fingerprints import FINGERPRINT, seal_fingerprint
from cloister.tasks.ledger.fingerprints import _opened as opened_fingerprint
from cloister.tasks.ledger.people import issue_token, set_roles, set_rules


def late_imports():
    global Sessions, Sheets, TestClient, page_app, schemathesis, views
    import schemathesis
    from starlette.testclient import TestClient

    from cloister.flows.page import views
    from cloister.flows.page.app import page_app
    from cloister.flows.page.views import Sheets
    from cloister.flows.page.visitors import Sessions


KEY = "the key that was printed"


class Visitor:
    """A browser without a window: it keeps cookies, and sends forms of the sheets that it saw."""

    def __init__(self, app, shown: str | None = KEY) -> None:
        self.client = TestClient(app, base_url="http://localhost", follow_redirects=False)
        if shown is not None:
            entered = self.client.post("/login", data={"shown": shown})
            assert entered.status_code == 303, entered.text

    def read(self, path: str = "", code: int = 200) -> str:
        answer = self.client.get(f"/homes/home{path}")
        assert answer.status_code == code, answer.text
        return answer.text

    def send(self, path: str, code: int = 303, **fields: str) -> str:
        sheet = self.client.get("/homes/home/people").text
        csrf = sheet.partition('name="csrf" value="')[2].partition('"')[0]
        answer = self.client.post(f"/homes/home{path}", data={"csrf": csrf, **fields})
        assert answer.status_code == code, answer.text
        return answer.text


@pytest.fixture
def app(home: Home):
    return page_app({"home": Sheets("home", home)}, Sessions(KEY), ["localhost"])


@pytest.fixture
def officer(app) -> Visitor:
    return Visitor(app)


def paths(app, method: str) -> list[str]:
    """Every place of the page, with names that there may be."""
    return [
        path.format(home="home", release="r-0", account="clubs", name="a", seq=1, move="approved")
        for path, methods in app.openapi()["paths"].items()
        if method in methods
    ]


def test_nobody_reads_or_decides_without_a_session(app, home):
    stranger = TestClient(app, base_url="http://localhost", follow_redirects=False)
    before = open_ledger(home).anchor()
    for path in set(paths(app, "get")) - {"/login", "/page.css"}:
        assert stranger.get(path).headers["location"] == "/login", path
    for path in set(paths(app, "post")) - {"/login"}:
        assert stranger.post(path, data={"reason": "x"}).status_code in (401, 422), path
    assert open_ledger(home).anchor() == before


def test_a_wrong_key_or_host_opens_nothing_and_guessing_is_slowed_down(app):
    assert TestClient(app, base_url="http://evil.example").get("/login").status_code == 400
    stranger = TestClient(app, base_url="http://localhost")
    codes = [stranger.post("/login", data={"shown": f"guess {n}"}).status_code for n in range(12)]
    assert codes[:5] == [401] * 5
    assert codes[-1] == 429


def test_what_a_browser_may_do_is_said_with_each_answer(officer, released):
    for path in ("", "/ledger", f"/releases/{released.id}", "/releases/r-none"):
        answer = officer.client.get(f"/homes/home{path}")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert "<script" not in answer.text
        assert " style=" not in answer.text


def test_a_release_waits_for_review_first_and_goes_its_way(officer, home, released):
    assert released.id in officer.read().partition("Budgets")[0]
    for move in ("approved", "published", "withdrawn"):
        officer.send(f"/releases/{released.id}/{move}", reason=f"it is {move} <now>")
        held = release_of(home, released.id)
        assert held.state is State(move)
        assert held.steps[-1].by == identity()
        assert f"it is {move} &lt;now&gt;" in officer.read(f"/releases/{released.id}")
    assert "Awaiting review: 0" in officer.read()
    assert "cannot" in officer.send(f"/releases/{released.id}/approved", 404, reason="again")


def test_a_form_of_another_page_or_session_changes_nothing(app, officer, home, released):
    other, before = Visitor(app), open_ledger(home).anchor()
    csrf = other.read("/people").partition('name="csrf" value="')[2].partition('"')[0]
    place = f"/homes/home/releases/{released.id}/approved"
    fields = {"reason": "because"}
    for sent in ({}, {"csrf": ""}, {"csrf": csrf}, {"csrf": "é"}):
        assert officer.client.post(place, data=fields | sent).status_code == 403
    own = officer.read("/people").partition('name="csrf" value="')[2].partition('"')[0]
    for origin in ("http://evil.example", "http://[::1"):
        foreign = {"Origin": origin}
        answer = officer.client.post(place, data=fields | {"csrf": own}, headers=foreign)
        assert answer.status_code == 403
    assert open_ledger(home).anchor() == before


def test_a_budget_is_granted_with_its_reason_and_shown_over_time(officer, home):
    grant = {"epsilon": "20", "delta": "1e-4", "per": "year", "unit": "row"}
    officer.send("/accounts/clubs/grant", reason="policy & 7", **grant)
    assert float(budgets(home, "clubs")[0].budget.epsilon) == 20
    sheet = officer.read("/accounts/clubs")
    assert "policy &amp; 7" in sheet
    assert '<svg class="chart"' in sheet
    doubtful = grant | {"epsilon": "2000"}
    refused = officer.send("/accounts/clubs/grant", 404, reason="x", **doubtful)
    assert "more than 10 times" in refused
    officer.send("/accounts/clubs/grant", reason="meant", sure="true", **doubtful)
    assert float(budgets(home, "clubs")[0].budget.epsilon) == 2000


@pytest.fixture
def people(home) -> SimpleNamespace:
    """An officer who runs this, another, and an auditor; tokens of the last two."""
    by = identity()
    set_roles(home, "Anna", ["officer"], [by], None, by, "mandate 1")
    for name, role in (("Ben", "officer"), ("Cai", "auditor")):
        set_roles(home, name, [role], [], None, by, "mandate 2")
    tokens = {name: issue_token(home, name, 9, by, "works from home")[0] for name in ("Ben", "Cai")}
    return SimpleNamespace(by=by, **tokens)


def test_roles_decide_who_reads_and_who_decides(app, home, people, released):
    auditor = Visitor(app, people.Cai)
    assert released.id in auditor.read()
    refused = auditor.send(f"/releases/{released.id}/approved", 403, reason="it is good")
    assert "needs the role officer or reviewer" in refused
    set_roles(home, "Cai", [], [], None, people.by, "none")
    assert "nobody has this token" in Visitor(app, "nobody:2999-01-01:secret").read("", 403)


def test_exact_figures_are_read_by_who_may_attack_and_nobody_else(app, home, people, released):
    internal = home.release(released.id) / "internal"
    for name in ("attacks.html", "plots/pairs.png"):
        (internal / name).parent.mkdir(exist_ok=True)
        (internal / name).write_bytes(b"exact")
    set_roles(home, "Eve", ["engineer"], [], None, people.by, "mandate")
    engineer = issue_token(home, "Eve", 9, people.by, "works from home")[0]
    sheet = f"/releases/{released.id}"
    exact = [f"{sheet}/{name}" for name in ("report", "attacks", "plots/plots/pairs.png")]
    for token in (people.Cai, engineer):
        visitor = Visitor(app, token)
        for path in exact:
            assert "needs the role officer or reviewer" in visitor.read(path, 403)
        shown = visitor.read(sheet) + visitor.read(f"{sheet}/comparison")
        assert not any(path in shown for path in exact)
        assert "measured on the real rows" not in shown.lower()
    officer = Visitor(app, people.Ben)
    shown = officer.read(sheet) + officer.read(f"{sheet}/comparison")
    assert all(path in shown for path in exact)
    assert "Internal: measured on the real rows" in shown
    assert [officer.read(path) for path in exact[1:]] == ["exact", "exact"]


def test_an_officer_ticks_the_accounts_of_the_same_data(app, home, people, released):
    key = home.fingerprint_key()
    (step,) = (each for each in release_of(home, released.id).steps if FINGERPRINT in each.evidence)
    ledger = open_ledger(home)
    ledger.grant("copy", "row", 9, 0, "ever", people.by, "why")
    set_roles(home, "Anna", ["officer", "engineer"], [], None, people.by, "runs too")
    copied = ledger.reserve(ask("copy"), people.by).release.id
    sealed = seal_fingerprint(opened_fingerprint(step.evidence[FINGERPRINT], key), key)
    ledger.spend(copied, people.by, "journal", "data", sealed)
    sheet, box = f"/releases/{released.id}", 'name="same_data" value="copy"'
    assert box not in Visitor(app, people.Cai).read(sheet)
    officer = Visitor(app, people.Ben)
    assert box in officer.read(sheet)
    assert "--same-data copy" in officer.send(f"{sheet}/approved", 403, reason="read it")
    officer.send(f"{sheet}/approved", reason="read it", same_data="copy")
    assert release_of(home, released.id).state is State.APPROVED


def test_four_eyes_and_a_second_officer_hold_on_the_page(app, home, people, released):
    set_rules(home, "*", {"four_eyes": True, "second_officer": True}, people.by, "policy 7")
    anna, ben = Visitor(app), Visitor(app, people.Ben)
    assert "somebody else" in anna.send(f"/releases/{released.id}/approved", 403, reason="mine")
    grant = {"epsilon": "20", "delta": "1e-4", "per": "year", "unit": "row", "reason": "policy 8"}
    anna.send("/accounts/clubs/grant", **grant)
    (proposal,) = open_ledger(home).books().house.proposals
    assert "policy 8" in ben.read("/people")
    anna.send(f"/proposals/{proposal}/confirm", 403, reason="myself")
    ben.send(f"/proposals/{proposal}/confirm", reason="agreed")
    assert float(budgets(home, "clubs")[0].budget.epsilon) == 20
    ben.send(f"/releases/{released.id}/approved", reason="read it")
    assert release_of(home, released.id).state is State.APPROVED


def test_a_proxy_shows_its_visitor_with_every_request(app, home, people):
    client = TestClient(app, base_url="http://localhost", follow_redirects=False)
    bearer = {"Authorization": f"Bearer {people.Ben}"}
    sheets = [client.get(f"/homes/home{at}", headers=bearer).text for at in ("", "/people")]
    assert all("<span>Ben · home</span>" in sheet for sheet in sheets)
    assert not any("(token " in sheet for sheet in sheets)
    assert client.get("/homes/home").headers["location"] == "/login"
    assert client.get("/homes/home", headers={"Authorization": "Bearer x"}).status_code == 403


def test_visits_are_noted(officer, home, released):
    officer.read(f"/releases/{released.id}")
    officer.read("/releases/r-none", 404)
    (noted,) = (home.folder / "visits").iterdir()
    assert noted.stat().st_mode & 0o777 == 0o600
    visits = [json.loads(line) for line in noted.read_text().splitlines()]
    assert [(each["by"], each["path"], each["status"]) for each in visits] == [
        (identity(), f"/homes/home/releases/{released.id}", "200"),
        (identity(), "/homes/home/releases/r-none", "404"),
    ]


def ended(officer, path: str) -> str:
    """A sheet, once what it shows is no longer under way."""
    for _ in range(600):
        if "Under way" not in (sheet := officer.read(path)):
            return sheet
        threading.Event().wait(0.1)
    raise TimeoutError(path)


def test_a_candidate_is_attacked_by_its_data_after_a_look(app, officer, home, people, released):
    sheet, spent = f"/releases/{released.id}", budgets(home, "clubs")
    officer.read(f"{sheet}/attacks", 404)
    auditor = Visitor(app, people.Cai)
    assert "needs the role" in auditor.send(f"{sheet}/attack", 403, reason="curious")
    assert release_of(home, released.id).looks == ()
    officer.send(f"{sheet}/attack", reason="small <clubs>")
    shown = ended(officer, sheet)
    look, page_of_it = release_of(home, released.id).looks
    assert page_of_it.page and not look.page
    assert (look.by, look.reason) == (identity(), "small <clubs>")
    assert f"/homes/home{sheet}/attacks" in shown
    assert "ttacked" in shown and "small &lt;clubs&gt;" in shown
    page = officer.client.get(f"/homes/home{sheet}/attacks")
    assert "Internal: do not share" in page.text and "small &lt;clubs&gt;" in page.text
    assert "sha256-" in page.headers["content-security-policy"]
    assert budgets(home, "clubs") == spent
    officer.send(f"{sheet}/rejected", reason="too near")
    assert 'id="attack"' not in officer.read(sheet)
    officer.read(f"{sheet}/attacks", 404)


@pytest.mark.slow
def test_an_attack_that_does_not_end_says_why(officer, home, released, other_data):
    officer.send(f"/releases/{released.id}/attack", reason="small clubs")
    assert "the data is not what release" in ended(officer, f"/releases/{released.id}")
    assert len(release_of(home, released.id).looks) == 1


def test_files_and_comparisons_are_those_of_releases_and_verification_names_them(
    officer, home, released
):
    assert released.id in officer.read(f"/releases/{released.id}/certificate")
    assert "INTERNAL" in officer.read(f"/releases/{released.id}/report")
    assert f"/releases/{released.id}/report" in officer.read(f"/releases/{released.id}")
    (home.folder / "secret.png").write_bytes(b"secret")
    for name in ("../../../secret.png", "%2e%2e/secret.png", "outcome.json"):
        assert "secret" not in officer.read(f"/releases/{released.id}/plots/{name}", 404)
    officer.read("/releases/..%2f..%2f/certificate", 404)
    comparison = officer.read(f"/releases/{released.id}/comparison")
    assert "No release of this account came before it" in comparison
    plot = next((home.release(released.id) / "public").glob("*.csv"))
    plot.write_bytes(plot.read_bytes() + b"x")
    officer.send("/ledger/verify")
    assert plot.name in ended(officer, "/ledger")


def test_a_locked_ledger_is_said_and_the_page_goes_on(officer, home, monkeypatch):
    monkeypatch.setattr(views, "_PATIENCE", 0.2)
    with closing(sqlite3.connect(home.ledger, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE held (x)")
        assert "cannot be used at the moment" in officer.read("", 423)
        other.execute("ROLLBACK")
    assert "Awaiting review" in officer.read()


@pytest.mark.slow
def test_hostile_requests_are_no_faults_of_the_page(app, officer):
    schema = schemathesis.openapi.from_dict(app.openapi())
    session = app.state.sessions.find(officer.client.cookies["cloister_session"])
    unwanted = ("/login", "/logout", "/homes/{home}/ledger/verify")
    for operation in (each.ok() for each in schema.get_all_operations()):
        if operation.path in unwanted:
            continue

        @given(case=operation.as_strategy())
        @settings(max_examples=3, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        def holds(case):
            session.bucket.left = 80.0
            if "home" in case.path_parameters:
                case.path_parameters["home"] = "home"
            if isinstance(case.body, dict):
                case.body["csrf"] = session.csrf
            sent = case.as_transport_kwargs(base_url="http://localhost")
            asked = {
                name: sent[name] for name in ("method", "url", "params", "data") if name in sent
            }
            answer = officer.client.request(**asked)
            assert answer.status_code < 500, (asked, answer.text)

        holds()


@pytest.fixture
def served(app):
    """The page on a port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    socket = server.config.bind_socket()
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    yield f"http://localhost:{socket.getsockname()[1]}"
    server.should_exit = server.force_exit = True
    thread.join()


def test_in_a_browser_by_keyboard_at_two_widths_and_on_paper(served, home, released, tmp_path):
    require_browser()
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(f"{served}/login")
        assert browser.violations() == []
        browser.run("document.querySelector('#shown').focus()")
        browser.type(KEY)
        browser.press("Enter")
        browser.loaded()
        release = f"/releases/{released.id}"
        for path in ("", release, f"{release}/comparison", "/accounts/clubs", "/ledger", "/people"):
            for width in (390, 1280):
                browser.width(width)
                browser.open(f"{served}/homes/home{path}")
                assert browser.run("document.documentElement.scrollWidth") == width, path
            assert browser.violations() == [], path
        browser.open(f"{served}/homes/home{release}")
        browser.run("document.querySelector('#attack-reason').focus()")
        browser.type("small clubs")
        browser.press("Tab")
        assert browser.run("document.activeElement.textContent") == "Look, and attack"
        browser.press("Enter")
        browser.loaded()
        attacks = f"{served}/homes/home{release}/attacks"
        for _ in range(600):
            browser.open(f"{served}/homes/home{release}")
            if browser.run(f"document.querySelector('a[href$=\"{release}/attacks\"]') !== null"):
                break
            threading.Event().wait(0.1)
        for width in (390, 1280):
            for sheet in (f"{served}/homes/home{release}", attacks):
                browser.width(width)
                browser.open(sheet)
                assert browser.run("document.documentElement.scrollWidth") == width, sheet
                assert width == 390 or browser.violations() == [], sheet
        assert "small clubs" in browser.run("document.body.textContent")
        browser.open(f"{served}/homes/home{release}")
        browser.paper(tmp_path / "sheet.pdf")
        assert (tmp_path / "sheet.pdf").read_bytes().startswith(b"%PDF")
        browser.run("document.querySelector('#reason').focus()")
        browser.type("read it whole")
        browser.press("Tab")
        assert browser.run("document.activeElement.textContent") == "Approve"
        browser.press("Enter")
        browser.loaded()
        assert release_of(home, released.id).state is State.APPROVED
    finally:
        browser.close()
