"""Signed statements as their readers meet them: at home, at a third party, in a forger's hands."""

import json
import shutil
from pathlib import Path

import pytest
from forged_ledger import rewritten

from cloister.flows.cli.app import main
from cloister.privacy.ledger import Ledger, State
from cloister.privacy.ledger.entries import Entry
from cloister.privacy.signing import FileSigner
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger
from cloister.tasks.ledger.keys import house_signer
from cloister.tasks.release.signing import sign_moves
from cloister.tasks.release.verify import verify_records


def late_imports():
    global move_release
    from cloister.flows.review import move_release


@pytest.fixture
def public(home: Home, released) -> Path:
    return home.release(released.id) / "public"


@pytest.fixture
def key(home: Home, tmp_path: Path) -> Path:
    path = tmp_path / "house.pub"
    path.write_text(house_signer(home).key.pem)
    return path


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as done:
        main([str(word) for word in words])
    return int(done.value.code or 0)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> None:
    """A third party, who has a home without releases."""
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "third" / "home"))


def given(public: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "third" / "folder"
    shutil.copytree(public, folder)
    return folder


@pytest.mark.parametrize(
    ("moves", "code", "words"),
    [
        ((), 4, "not approved, as far as this folder shows"),
        (("approved",), 0, "approved as of 2"),
        (("rejected",), 4, "rejected as of 2"),
        (("approved", "published", "withdrawn"), 4, "withdrawn as of 2"),
    ],
)
def test_a_third_party_reads_the_state_from_folder_and_key(
    home, public, key, released, tmp_path, monkeypatch, capsys, moves, code, words
):
    for state in moves:
        move_release(home, released.id, state, "officer", "because")
    assert verify_records(home, None)[1] == []
    folder = given(public, tmp_path)
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "third" / "home"))
    capsys.readouterr()
    assert run("verify", folder, "--key", key) == code
    said = capsys.readouterr().out
    assert words in said and ("by officer" in said or not moves)
    assert run("verify", folder) == 3
    assert "give --key" in capsys.readouterr().out
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "other.pub").write_text(FileSigner.open(tmp_path / "other" / "key.pem").key.pem)
    assert run("verify", folder, "--key", tmp_path / "other.pub") == 3
    if moves == ("approved",):  # an approval may be too old
        assert run("verify", folder, "--key", key, "--max-age", "1") == 0
        assert run("verify", folder, "--key", key, "--max-age", "0") == 4


def test_in_the_home_the_ledger_gives_the_state_of_each_copy(home, public, released, tmp_path):
    folder = given(public, tmp_path)
    assert run("verify", folder) == 4
    move_release(home, released.id, "approved", "officer", "because")
    assert run("verify", folder) == 0
    move_release(home, released.id, "withdrawn", "officer", "an error")
    assert run("verify", folder) == 4
    assert run("verify") == 0


def test_an_unsigned_folder_only_agrees_with_itself(public, key, tmp_path, elsewhere, capsys):
    folder = given(public, tmp_path)
    for path in folder.glob("*.dsse.json"):
        path.unlink()
    assert run("verify", folder, "--key", key) == 3
    assert "unsigned: only consistent with itself" in capsys.readouterr().out


def test_a_rewritten_approver_is_found_by_the_signature(home, released):
    move_release(home, released.id, "approved", "officer", "because")
    approved = next(e for e in open_ledger(home).entries() if e.kind == State.APPROVED)

    def other(entry: Entry) -> dict:
        return {**entry.body, "by": "ceo"} if entry.seq == approved.seq else dict(entry.body)

    rewritten(home, other)
    found = verify_records(home, None)[1]
    assert any("approved.dsse.json: the ledger names another person" in each for each in found)
    assert any("does not hold the entry that was signed" in each for each in found)


def test_a_withdrawal_that_was_cut_off_is_found(home, released):
    move_release(home, released.id, "approved", "officer", "because")
    before = len(open_ledger(home).entries())
    move_release(home, released.id, "withdrawn", "officer", "an error")
    rewritten(home, lambda entry: dict(entry.body), before)
    found = verify_records(home, None)[1]
    assert any("withdrawn.dsse.json: the ledger holds no such move" in each for each in found)


def test_a_move_that_was_killed_before_its_signature_is_signed_again(home, public, released):
    open_ledger(home).advance(released.id, State.APPROVED, "officer", "because")
    found = verify_records(home, None)[1]
    assert found and "countersign" in found[0]
    assert run("review", "countersign", released.id, "--by", "officer") == 0
    assert sign_moves(home, released.id, "officer") == []
    (finding,) = verify_records(home, None)[1]
    assert "sends it again" in finding
    move_release(home, released.id, "approved", "officer", "because")
    assert verify_records(home, None)[1] == []
    assert len(json.loads((public / "approved.dsse.json").read_text())["signatures"]) == 1


def test_a_lost_and_a_replaced_house_key_are_found(home, public, released, capsys):
    """The folder is still read where the public half is lost."""
    private, half = (home.folder / "signing" / f"house.{end}" for end in ("pem", "pub"))
    move_release(home, released.id, "approved", "officer", "because")
    text = half.read_text()
    half.unlink()
    assert run("verify", public) == 0
    assert run("verify") == 1
    assert "house.pub" in capsys.readouterr().out
    half.write_text(text)
    private.unlink()
    FileSigner.open(private)
    assert any("are of two keys" in each for each in verify_records(home, None)[1])
    half.unlink()
    house_signer(home)
    assert any("is not signed by the key" in each for each in verify_records(home, None)[1])


def test_a_statement_that_was_written_and_not_recorded_is_recorded(home, released, monkeypatch):
    """Killed between the file and the entry of its signature."""
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "sign", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            move_release(home, released.id, "approved", "officer", "because")
    assert any("no signature that the ledger recorded" in e for e in verify_records(home, None)[1])
    move_release(home, released.id, "approved", "officer", "because")
    assert verify_records(home, None)[1] == []
    assert sign_moves(home, released.id, "officer") == []


def test_an_altered_folder_is_not_signed_again(home, public, released, capsys):
    open_ledger(home).advance(released.id, State.APPROVED, "officer", "because")
    table = public / "synthetic.parquet"
    table.write_bytes(table.read_bytes() + b"more")
    assert run("review", "countersign", released.id, "--by", "officer") != 0
    assert "nothing was signed" in capsys.readouterr().err
    assert not (public / "approved.dsse.json").exists()
