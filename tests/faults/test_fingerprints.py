"""Equal data of two accounts, on either database: officers are told, and nobody else sees it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ledger_requests import ask

from cloister.errors import InputError, NotPermitted
from cloister.flows.cli.app import run
from cloister.privacy.ledger import Ledger
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity
from cloister.tasks.ledger import fingerprints
from cloister.tasks.ledger.access import export_ledger, open_ledger
from cloister.tasks.ledger.people import set_roles
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve

EQUAL, OTHER = "e1" * 32, "e2" * 32


def home_at(folder: Path, place: str) -> Home:
    return Home.current({"CLOISTER_HOME": str(folder), "CLOISTER_LEDGER": place})


def spent(home: Home, account: str, fingerprint: str) -> int:
    """A release of an account that read data of this fingerprint; the entry of its charge."""
    ledger = open_ledger(home)
    ledger.grant(account, "row", 9, 0, "ever", "officer", "why")
    release = ledger.reserve(ask(account), "flow").release.id
    sealed = fingerprints.seal_fingerprint(fingerprint, home.fingerprint_key())
    ledger.spend(release, "flow", "journal", "data", sealed)
    return ledger.anchor().seq  # type: ignore[union-attr]


def test_an_officer_is_told_which_accounts_read_the_same_data(tmp_path: Path, place: str) -> None:
    home = home_at(tmp_path / "home", place)
    first = spent(home, "adult", EQUAL)
    spent(home, "visits", OTHER)
    second = spent(home, "copy", EQUAL)
    assert fingerprints.equal_data(home) == {
        "adult": [f"the same data as copy (entry {second})"],
        "copy": [f"the same data as adult (entry {first})"],
    }
    assert open_ledger(home).verify() == []


def test_homes_on_one_ledger_compare_their_data_if_they_have_the_same_key(tmp_path, place) -> None:
    one, two = home_at(tmp_path / "one", place), home_at(tmp_path / "two", place)
    entry = spent(one, "adult", EQUAL)
    two.prepare()
    (two.folder / "fingerprint.key").write_bytes(one.fingerprint_key())
    spent(two, "copy", EQUAL)
    assert fingerprints.equal_data(two)["copy"] == [f"the same data as adult (entry {entry})"]
    spent(home_at(tmp_path / "apart", place), "third", EQUAL)
    assert fingerprints.equal_data(two)["third"] == [
        "read under another fingerprint.key, and not compared with others"
    ]


@pytest.mark.parametrize("role", ["engineer", "reviewer", "auditor"])
def test_nobody_but_an_officer_is_told(tmp_path: Path, place: str, role: str, capsys) -> None:
    home = home_at(tmp_path / "home", place)
    spent(home, "adult", EQUAL)
    spent(home, "copy", EQUAL)
    set_roles(home, "me", ("officer",), (identity(),), None, identity(), "mandate")
    assert fingerprints.equal_data(home)
    set_roles(home, "other", ("officer",), ("another",), None, identity(), "mandate")
    set_roles(home, "me", (role,), (), None, identity(), "mandate")
    assert fingerprints.equal_data(home) == {}


def test_an_officer_who_approves_names_the_accounts_of_the_same_data(tmp_path, place) -> None:
    home = home_at(tmp_path / "home", place)
    spent(home, "visits", OTHER)
    entries = [spent(home, account, EQUAL) for account in ("adult", "copy", "adult")]
    (release,) = open_ledger(home).releases("copy")
    assert fingerprints.accounts_of_same_data(home, release, identity()) == {"adult": entries[2]}
    refused = rf"same rows as account 'adult' \(entry {entries[2]}\).*--same-data adult"
    with pytest.raises(NotPermitted, match=refused):
        fingerprints.require_seen(home, release, identity(), ())
    with pytest.raises(InputError, match="'visits' is not known to hold the data"):
        fingerprints.require_seen(home, release, identity(), ("adult", "visits"))
    fingerprints.require_seen(home, release, identity(), ("adult",))
    (alone,) = open_ledger(home).releases("visits")
    fingerprints.require_seen(home, alone, identity(), ())


def test_a_reviewer_who_approves_is_told_of_no_other_account(tmp_path: Path, place: str) -> None:
    home = home_at(tmp_path / "home", place)
    for account in ("adult", "copy"):
        spent(home, account, EQUAL)
    (release,) = open_ledger(home).releases("copy")
    set_roles(home, "Anna", ("officer",), (identity(),), None, identity(), "mandate")
    set_roles(home, "Rita", ("reviewer",), ("rita",), None, identity(), "mandate")
    fingerprints.require_seen(home, release, "rita", ())
    assert fingerprints.accounts_of_same_data(home, release, "rita") == {}
    with pytest.raises(InputError, match="'adult' is not known to hold the data"):
        fingerprints.require_seen(home, release, "rita", ("adult",))
    with pytest.raises(NotPermitted):
        fingerprints.require_seen(home, release, f"{identity()} on behalf of the board", ())


def test_the_chain_does_not_show_which_releases_read_the_same(tmp_path: Path, place: str) -> None:
    """Neither does an export, which auditors get: each release seals its fingerprint anew."""
    home = home_at(tmp_path / "home", place)
    for _ in range(3):
        spent(home, "adult", EQUAL)
    export_ledger(home, tmp_path / "ledger.jsonl")
    text = (tmp_path / "ledger.jsonl").read_text()
    assert EQUAL[:32] not in text and home.fingerprint_key().hex() not in text
    sealed = [
        step.evidence["fingerprint"].partition(":")[2]
        for release in open_ledger(home).releases()
        for step in release.steps
        if "fingerprint" in step.evidence
    ]
    pieces = {each[at : at + 8] for each in sealed for at in range(0, len(each) - 7, 8)}
    assert len(pieces) == sum(len(each) // 8 for each in sealed)  # no block of two is the same


def test_a_run_that_resumes_a_spent_release_seals_nothing_new(tmp_path: Path, place: str) -> None:
    ledger = Ledger.open(place)
    ledger.grant("adult", "row", 9, 0, "ever", "officer", "why")
    release = ledger.reserve(ask(), "flow").release.id
    first = ledger.spend(release, "flow", "journal", "data")  # by a version without fingerprints
    assert ledger.spend(release, "flow", "journal", "data", "sealed") == first


def test_a_copy_in_another_order_has_the_fingerprint_and_one_row_more_another(
    tmp_path: Path, write_world: Callable[..., Path]
) -> None:
    spec, home = write_world(tmp_path, "adult"), home_at(tmp_path / "home", str(tmp_path / "l.db"))
    frame = pd.read_csv(tmp_path / "adult.csv")

    def fingerprint(rows: pd.DataFrame, release: str) -> str:
        path = tmp_path / f"{len(rows)}-{release}.csv"
        rows.to_csv(path, index=False)
        request = resolve(ReleaseRequest(spec=spec, data=path))
        return TablesSource().read_rows(release, request, home)[1].fingerprint

    shuffled = frame.iloc[np.random.default_rng(1).permutation(len(frame))]
    assert fingerprint(shuffled, "r-2") == fingerprint(frame, "r-1")
    assert fingerprint(frame.iloc[1:], "r-3") != fingerprint(frame, "r-1")


def test_a_copy_under_another_account_is_told_by_the_command_alone(
    tmp_path: Path, prefect_server, monkeypatch, capsys, write_world: Callable[..., Path]
) -> None:
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    spec = write_world(tmp_path, "adult")
    words = ["--method", "independent", "--evaluate", "none", "--json"]
    assert run(["release", str(spec), *words]) == 0
    (tmp_path / "copied.csv").write_bytes((tmp_path / "adult.csv").read_bytes())
    second = tmp_path / "copied.yaml"
    text = spec.read_text(encoding="utf-8").replace("name: adult", "name: copied")
    second.write_text(text.replace("adult.csv", "copied.csv"), encoding="utf-8")
    capsys.readouterr()
    assert run(["release", str(second), *words]) == 0
    said = json.loads(capsys.readouterr().out)
    assert "same data" not in json.dumps(said)
    public = Path(said["files"]["public"])
    assert "fingerprint" not in (public / "certificate.yaml").read_text(encoding="utf-8")
    assert run(["dataset", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["dataset"], len(each["equal"])) for each in found] == [
        ("adult", 1),
        ("copied", 1),
    ]
    assert found[0]["equal"][0].startswith("the same data as copied (entry ")
    approval = ["review", "approve", said["release"], "--reason", "read it"]
    assert run(approval) == 2
    assert "say that you know with --same-data adult" in " ".join(capsys.readouterr().err.split())
    assert run(["review", "show", said["release"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same_data"].keys() == {"adult"}
    assert run([*approval, "--same-data", "adult"]) == 0
    capsys.readouterr()
    assert run(["dataset", "list"]) == 0
    assert "copied: the same data as adult" in "".join(capsys.readouterr())
