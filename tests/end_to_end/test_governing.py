"""People, rules, tokens and confirmations by the real commands, and a house key kept elsewhere."""

import re
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
from ledger_requests import ask

from cloister.errors import StorageError
from cloister.flows.cli.app import run
from cloister.identities import new_token, token_identity
from cloister.privacy.ledger.governance import decline
from cloister.privacy.signing import FileSigner
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity
from cloister.tasks.ledger.access import open_ledger
from cloister.tasks.ledger.keys import open_person
from cloister.tasks.release.verify import verify_records

WHY = ("--reason", "policy 7")


@pytest.fixture
def home(tmp_path: Path, monkeypatch) -> Home:
    """A new home, with two officers, an engineer and an account."""
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    assert run(["people", "set", "Anna", "--role", "officer", "--identity", identity(), *WHY]) == 0
    for name, role in (("Ben", "officer"), ("Eve", "engineer")):
        assert run(["people", "set", name, "--role", role, "--identity", name, *WHY]) == 0
    account = ("visits", "--place", str(tmp_path / "visits.csv"), *WHY)
    assert run(["dataset", "add", *account]) == 0
    return Home.current()


@pytest.fixture
def as_person(home, cloister, monkeypatch):
    """Runs a command as whom a new token shows; its exit code."""

    def command(name: str, *words: str) -> int:
        token = cloister("people", "token", name, *WHY)["token"]
        with monkeypatch.context() as patch:
            patch.setenv("CLOISTER_TOKEN", token)
            return run([*words, *WHY])

    return command


GRANT = ("budget", "grant", "visits", "--epsilon", "1", "--delta", "1e-6", "--per", "year")


def test_a_token_acts_with_its_persons_roles_until_they_are_withdrawn(
    home, cloister, as_person, monkeypatch, capsys
):
    assert as_person("Ben", *GRANT) == 0
    capsys.readouterr()
    assert as_person("Eve", *GRANT) == 2
    assert "needs the role officer, and Eve has engineer" in capsys.readouterr().err
    assert cloister("budget", "history")[-1]["by"] == "Ben"
    token = cloister("people", "token", "Ben", *WHY)["token"]
    assert run(["people", "withdraw", "Ben", *WHY]) == 0
    monkeypatch.setenv("CLOISTER_TOKEN", token)
    capsys.readouterr()
    assert run([*GRANT, *WHY]) == 2
    assert "Nobody has this token" in capsys.readouterr().err


def test_lists_of_people_hold_no_digest_of_a_token(home, cloister, as_person, capsys):
    cloister("rules", "set", "visits", "--second-officer", *WHY)
    assert as_person("Ben", *GRANT) == 0
    for words in (["people", "list"], ["rules", "show"]):
        capsys.readouterr()
        assert run(words) == 0
        assert not re.search("[0-9a-f]{32}", capsys.readouterr().out.replace("\n", ""))
    assert run(["people", "token", "Ben", *WHY]) == 0


@pytest.mark.parametrize("words", [("budget", "show"), ("ledger", "list"), ("people", "list")])
def test_a_token_that_is_none_is_refused_to_readers_too(home, cloister, monkeypatch, capsys, words):
    token = cloister("people", "token", "Ben", *WHY)["token"]
    ended = new_token("Ben", date(2020, 1, 1))
    cloister("people", "set", "Ben", "--identity", token_identity(ended), *WHY)
    foreign = new_token("Ben", date(2200, 1, 1))
    for given, problem in (
        ("rubbish", "no token of Cloister"),
        (ended, "valid until 2020-01-01"),
        (foreign, "Nobody has this token"),
        (token, ""),
    ):
        monkeypatch.setenv("CLOISTER_TOKEN", given)
        capsys.readouterr()
        assert run([*words]) == (2 if problem else 0)
        assert problem in " ".join(capsys.readouterr().err.split())
        assert run([*words, "--help"]) == 0


def test_declined_requests_are_listed(home, cloister, capsys):
    cloister(*GRANT, *WHY)
    cloister("people", "set", "Anna", "--role", "officer", "--role", "engineer", *WHY)
    decline(open_ledger(home), ask("visits", epsilon=5), identity(), "a try")
    (declined,) = cloister("ledger", "list", "visits", "--declined")
    assert (declined["epsilon"], declined["left"], declined["by"]) == ("5", "1", "Anna")
    capsys.readouterr()
    assert run(["ledger", "list", "--declined"]) == 0
    assert "a try" in capsys.readouterr().out


def test_a_key_is_made_with_a_passphrase_from_the_environment(tmp_path, monkeypatch, capsys):
    path = tmp_path / "anna.pem"
    monkeypatch.setenv("CLOISTER_PASSPHRASE", "four words of mine")
    assert run(["keys", "make", str(path)]) == 0
    assert "BEGIN ENCRYPTED" in path.read_text()
    assert open_person(str(path)).key.pem.strip() == capsys.readouterr().out.strip()
    monkeypatch.delenv("CLOISTER_PASSPHRASE")
    with pytest.raises(StorageError, match="another passphrase than was given"):
        open_person(str(path))


def test_a_terminal_is_asked_for_a_passphrase_twice(tmp_path, monkeypatch):
    path, asked = tmp_path / "anna.pem", []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", lambda *_, **__: asked.append("") or "word")
    monkeypatch.setattr("cloister.tasks.ledger.keys.getpass", lambda _: "word")
    assert run(["keys", "make", str(path)]) == 0
    assert len(asked) == 2
    assert "BEGIN ENCRYPTED" in path.read_text()
    assert open_person(str(path))


def test_a_token_can_go_to_a_file(home, monkeypatch, capsys):
    """Standard output holds the token and nothing else; what was done is said beside it."""
    capsys.readouterr()
    assert run(["people", "token", "Ben", "--days", "30", *WHY]) == 0
    said = capsys.readouterr()
    (token,) = said.out.splitlines()
    assert "Ben is known by this token now, for 30 days" in said.err
    monkeypatch.setenv("CLOISTER_TOKEN", token)
    assert run([*GRANT, *WHY]) == 0


def test_a_token_that_waits_for_a_second_officer_says_so(home, cloister, capsys):
    cloister("rules", "set", "--second-officer", *WHY)
    capsys.readouterr()
    assert run(["people", "token", "Eve", *WHY]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert "once another officer says cloister confirm" in said.err


def test_a_grant_waits_for_a_second_officer(home, cloister, as_person, capsys):
    cloister("rules", "set", "visits", "--second-officer", *WHY)
    assert cloister("rules", "show")["visits"]["second_officer"]
    proposed = cloister(*GRANT, *WHY)
    assert proposed["kind"] == "budget_granted"
    entry = str(proposed["proposal"])
    assert [each["proposal"] for each in cloister("people", "list")["proposals"]] == [int(entry)]
    assert cloister("budget", "history") == []
    assert run(["confirm", entry, *WHY]) == 2
    assert as_person("Ben", "confirm", entry) == 0
    (granted,) = cloister("budget", "history")
    assert (granted["by"], granted["confirmed_by"]) == ("Anna", "Ben")
    assert verify_records(home, None)[1] == []


def test_rules_that_are_not_named_stay(home, cloister):
    cloister("rules", "set", "--four-eyes", "--approvals", "officer=2", *WHY)
    cloister("rules", "set", "--purposes", *WHY)
    found = cloister("rules", "show")["*"]
    assert found["four_eyes"] and found["purposes"]
    assert found["approvals"] == {"officer": 2}
    for words in (["nobody"], ["--approvals", "officer"], ["--approvals", "auditor=1"]):
        assert run(["rules", "set", *words, *WHY]) == 2


def test_the_houses_key_may_lie_elsewhere(tmp_path, monkeypatch, capsys):
    (tmp_path / "safe").mkdir(mode=0o700)
    key = FileSigner.open(tmp_path / "safe" / "house.pem").key
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLOISTER_HOUSE_KEY", str(tmp_path / "safe" / "house.pem"))
    assert run(["dataset", "add", "visits", "--place", str(tmp_path / "x.csv"), *WHY]) == 0
    home = Home.current()
    assert {each.body["signed"]["key"] for each in open_ledger(home).entries()} == {key.raw.hex()}
    assert not (home.folder / "signing" / "house.pem").exists()
    assert verify_records(home, None)[1] == []
    capsys.readouterr()
    assert run(["keys", "rotate", *WHY]) == 2
    assert "not a file of the home" in capsys.readouterr().err
