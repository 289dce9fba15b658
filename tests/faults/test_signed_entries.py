"""Each entry bears a signature: who rewrites the ledger and all notes of its end is still found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_requests import ask
from two_databases import on_both

from cloister.errors import StorageError
from cloister.privacy.ledger import Account, BudgetGrant, Entry, Ledger, Opening, signature_findings
from cloister.privacy.ledger.entries import signed_body
from cloister.privacy.ledger.governance import trust
from cloister.privacy.signing import FileSigner, PublicKey
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import export_ledger, open_ledger, restore_ledger
from cloister.tasks.ledger.keys import house_key, house_signer
from cloister.tasks.release.verify import verify_records


@pytest.fixture
def home(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CLOISTER_LEDGER", place)
    return another(tmp_path / "home", monkeypatch)


def another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home on the same ledger, that charged a release."""
    monkeypatch.setenv("CLOISTER_HOME", str(folder))
    home = Home.current()
    budget = BudgetGrant.of("adult", "row", 3, "1e-4", "year")
    opening = Opening(Account("adult", "row", "add_remove", ("/data/a.csv",)), budget, "declared")
    open_ledger(home).reserve(ask(), "flow", opening)
    return home


def key_of(home: Home) -> PublicKey:
    key = house_key(home)
    assert key is not None
    return key


def found(entries: list[Entry], *keys: PublicKey) -> list[str]:
    return [str(finding) for finding in signature_findings(entries, keys)]


def chained(entries: list[Entry], change: Callable[[Entry], dict]) -> list[Entry]:
    """A chain that fits, of entries that were changed."""
    made: list[Entry] = []
    for entry in entries:
        last = made[-1] if made else None
        made.append(Entry.after(last, entry.time, entry.kind, entry.slot, change(entry)))
    return made


@on_both
def test_a_home_signs_what_it_writes(home: Home) -> None:
    entries = open_ledger(home).entries()
    assert len(entries) == 3 and all("signed" in entry.body for entry in entries)
    assert found(entries, key_of(home)) == []
    assert verify_records(home, None)[1] == []


@pytest.mark.parametrize("by", ["nobody", "forger"])
def test_a_rebuilt_chain_is_found(home: Home, tmp_path: Path, by: str) -> None:
    """The forger rewrites the first entry, and makes chain and hashes fit."""
    forger = FileSigner.open(tmp_path / "forger.pem")

    def change(entry: Entry) -> dict:
        body = dict(entry.body) | ({"by": "ceo"} if entry.seq == 1 else {})
        if by == "nobody":
            return body
        body.pop("signed")
        return signed_body(replace(entry, body=body), forger)

    said = found(chained(open_ledger(home).entries(), change), key_of(home))
    assert said and all("signature" in each or forger.key.id[:16] in each for each in said)


def test_an_entry_of_other_means_is_found(home: Home, place: str) -> None:
    Ledger.open(place).reserve(ask(), "flow")
    assert "entry 4: is not signed" in verify_records(home, None)[1][0]


def test_entries_before_signatures_are_not_asked_for_any(tmp_path, place, monkeypatch) -> None:
    """A ledger of a version before 0.3."""
    ledger = Ledger.open(place)
    ledger.grant("adult", "row", 3, "1e-4", "year", "officer", "why")
    ledger.reserve(ask(), "flow")
    monkeypatch.setenv("CLOISTER_LEDGER", place)
    assert verify_records(another(tmp_path / "home", monkeypatch), None)[1] == []


def test_another_home_is_unknown_until_it_is_trusted(home, tmp_path, monkeypatch) -> None:
    key = key_of(another(tmp_path / "second", monkeypatch))
    (unknown,) = [each for each in verify_records(home, None)[1] if "cloister keys trust" in each]
    assert f"entry 4: 1 entry from here on is signed by the key {key.id[:16]}" in unknown
    trust(open_ledger(home), key, "officer", "the home in Porto")
    trust(open_ledger(home), key, "officer", "the home in Porto")
    assert verify_records(home, None)[1] == []
    assert [entry.kind for entry in open_ledger(home).entries()].count("key_trusted") == 1
    assert open_ledger(home).verify() == []


def test_a_forger_cannot_trust_a_key(home: Home, tmp_path: Path, place: str) -> None:
    forger = FileSigner.open(tmp_path / "forger.pem")
    ledger = replace(Ledger.open(place), signer=lambda: forger)
    trust(ledger, forger.key, "officer", "the home in Porto")
    said = verify_records(home, None)[1]
    assert any(forger.key.id[:16] in each for each in said)


def test_an_export_is_checked_elsewhere_by_the_key_alone(home, tmp_path, monkeypatch) -> None:
    export, key = tmp_path / "ledger.jsonl", key_of(home)
    export_ledger(home, export)
    elsewhere = Home.current({"CLOISTER_HOME": str(tmp_path / "auditor")})
    other = FileSigner.open(tmp_path / "other.pem").key
    assert verify_records(elsewhere, str(export), key=key)[1] == []
    assert (
        "none of its entries is signed by"
        in verify_records(elsewhere, str(export), key=other)[1][0]
    )
    rebuilt = chained(
        open_ledger(home).entries(),
        lambda entry: dict(entry.body) | ({"by": "ceo"} if entry.seq == 2 else {}),
    )
    export.write_text("".join(entry.line + "\n" for entry in rebuilt))
    assert verify_records(elsewhere, str(export))[1] == []
    assert "does not verify" in verify_records(elsewhere, str(export), key=key)[1][0]


def test_a_restored_ledger_keeps_its_signatures(home: Home, tmp_path: Path, place: str) -> None:
    export = tmp_path / "ledger.jsonl"
    export_ledger(home, export)
    with pytest.raises(StorageError, match="holds entries"):
        restore_ledger(home, export)
    fresh = Home.current(
        {"CLOISTER_HOME": str(home.folder), "CLOISTER_LEDGER": f"sqlite:///{tmp_path}/again/l.db"}
    )
    restore_ledger(fresh, export)
    assert open_ledger(fresh).entries() == open_ledger(home).entries()
    assert found(open_ledger(fresh).entries(), house_signer(home).key) == []
