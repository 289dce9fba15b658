"""Anchors outside: sent with each move, later if a place is down; what a rewritten ledger lacks."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from forged_ledger import rewritten
from quick_release import quick_release

from cloister.errors import InputError, VerificationError
from cloister.flows.cli.app import run
from cloister.privacy.ledger import State
from cloister.privacy.ledger.entries import Entry
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger, export_ledger, open_ledger, restore_ledger
from cloister.tasks.ledger.anchors import anchor_stores, compare_stores
from cloister.tasks.ledger.keys import house_signer
from cloister.tasks.release.verify import verify_records


def remote(tmp_path: Path) -> str:
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "git")], check=True)
    return f"git+file://{tmp_path / 'git'}"


@pytest.fixture(scope="module")
def server():
    """An object store on this machine."""
    started = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    started.start()
    yield "http://{}:{}".format(*started.get_host_and_port())
    started.stop()


@pytest.fixture
def bucket(server, monkeypatch) -> str:
    """A bucket that lets nothing go for ten years."""
    import boto3

    for name, text in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "ours",
        "AWS_SECRET_ACCESS_KEY": "ours",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, text)
    client = boto3.client("s3")
    client.create_bucket(Bucket="anchors", ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Years": 10}}
    client.put_object_lock_configuration(
        Bucket="anchors", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    yield "s3://anchors/house"
    client.close()
    httpx.post(f"{server}/moto-api/reset").raise_for_status()


STORES = ["file", "git", "s3"]


@pytest.fixture(params=[STORES[0], *(pytest.param(n, marks=pytest.mark.slow) for n in STORES[1:])])
def store(request, tmp_path) -> str:
    """Where anchors can be sent."""
    if request.param == "file":
        return str(tmp_path / "worm file")
    if request.param == "git":
        return remote(tmp_path)
    return request.getfixturevalue("bucket")


@pytest.fixture
def anchored(home: Home, monkeypatch) -> Callable[[str], Home]:
    """Sets the places of the home."""

    def at(*places: str) -> Home:
        monkeypatch.setenv("CLOISTER_ANCHORS", shlex.join(places))
        return Home.current()

    return at


def entries(home: Home) -> list[Entry]:
    return existing_ledger(home).entries()


def findings(home: Home) -> list[str]:
    return verify_records(home, None)[1]


def words(home: Home) -> str:
    return verify_records(home, None)[0][-1]


def lines(home: Home) -> list[str]:
    (store,) = anchor_stores(home)
    return store.lines()


def move(release: str, state: str = "approve") -> int:
    return run(["review", state, release, "--by", "A. Officer", "--reason", "fine"])


def another_approver(entry: Entry) -> dict:
    return {**entry.body, "by": "ceo"} if entry.kind == State.APPROVED else dict(entry.body)


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_each_move_is_anchored_as_a_stock_reader_accepts_and_the_ledger_agrees(
    anchored, store, released
):
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

    home = anchored(store)
    before = len(entries(home))
    assert words(home) == f"{store} (0 anchors, up to entry 0)"
    assert move(released.id) == 0
    written = entries(home)[before:]
    # the move, its signature, and the deletion of what the decision ended the need for
    assert [entry.kind for entry in written] == ["approved", "signed", "deleted"]
    assert len(lines(home)) == 3
    assert words(home) == f"{store} (3 anchors, up to entry {written[-1].seq})"
    assert findings(home) == []
    assert move(released.id, "publish") == 0
    assert len(lines(home)) == 5
    assert findings(home) == []
    key, last = house_signer(home).key, entries(home)[-1]
    public = SSlibKey.from_crypto(load_pem_public_key(key.pem.encode()), keyid=key.id)
    for line in lines(home):
        envelope = Envelope.from_dict(json.loads(line))
        envelope.verify([public], threshold=1)
        said = json.loads(envelope.payload)
        if said["predicate"]["seq"] == last.seq:
            break
    assert said["predicate"]["hash"] == said["subject"][0]["digest"]["sha256"] == last.hash


@pytest.mark.slow
def test_a_release_is_anchored_as_it_goes(anchored, released, tmp_path):
    home = anchored(str(tmp_path / "worm"))
    before = len(entries(home))
    assert run(quick_release(released.place)) == 0
    assert len(lines(home)) > 3
    assert words(home).endswith(f"up to entry {entries(home)[-1].seq})")
    assert entries(home)[-1].seq > before
    assert findings(home) == []


def test_a_rewritten_ledger_is_found_by_what_a_place_holds(anchored, store, released):
    home = anchored(store)
    assert move(released.id) == 0
    first = next(entry.seq for entry in entries(home) if entry.kind == "approved")
    rewritten(home, another_approver)
    said = (
        f"the ledger was rewritten: entry {first} is not the one that {store} holds; restore it "
        "from a backup or an export that agrees"
    )
    assert said in findings(home)


@pytest.mark.slow
def test_an_end_that_was_cut_off_is_found_by_a_place(anchored, store, released, tmp_path):
    home = anchored(store)
    early = tmp_path / "early.jsonl"
    export_ledger(home, early)
    kept = len(entries(home))
    assert move(released.id) == 0
    last = len(entries(home))
    late = tmp_path / "late.jsonl"
    export_ledger(home, late)
    rewritten(home, lambda entry: dict(entry.body), kept)
    assert any(
        f"the ledger's end was cut off: {store} holds entry {last}, and the ledger ends with "
        f"{kept}" in finding
        for finding in findings(home)
    )
    for path in [*home.folder.glob("ledger.db*"), home.end]:
        path.unlink()
    with pytest.raises(VerificationError, match=f"entry {kept + 1}"):
        restore_ledger(home, early)
    restore_ledger(home, late)
    assert findings(home) == []


def test_a_damaged_and_a_replaced_key_are_found_by_what_a_place_holds(anchored, tmp_path, released):
    home = anchored(str(tmp_path / "worm"))
    assert move(released.id) == 0
    public = home.folder / "signing" / "house.pub"
    public.write_text("damaged")
    found = findings(home)
    assert any(str(public) in finding for finding in found)
    assert any("worm" in finding and "is not signed by a known key" in finding for finding in found)
    shutil.rmtree(home.folder / "signing")
    house_signer(home)
    assert any("is not signed by the key" in f and "worm" in f for f in findings(home))


def test_auditors_compare_an_export_with_a_place(anchored, store, released, tmp_path, monkeypatch):
    home, export, forged = anchored(store), tmp_path / "export", tmp_path / "forged"
    assert move(released.id) == 0
    export_ledger(home, export)
    assert move(released.id, "publish") == 0  # later than the export, and nothing amiss
    key = shutil.copyfile(home.folder / "signing" / "house.pub", tmp_path / "house.pub")
    rewritten(home, another_approver)
    existing_ledger(home).export(forged)
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "auditor"))
    assert run(["verify", str(export), "--key", str(key)]) == 0
    assert run(["verify", str(export)]) == 1  # whose anchors these are is not known
    checked, found = verify_records(Home.current(), str(forged), (), None)
    assert len(checked) == 2
    assert any("the ledger was rewritten" in finding for finding in found)


def gone_and_back(store: str, tmp_path: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """How a place becomes unreachable, and reachable again."""
    held = tmp_path / ("git" if store.startswith("git") else "mount")
    away = tmp_path / "away"
    return lambda: held.rename(away), lambda: away.rename(held)


@pytest.mark.parametrize("kind", ["file", pytest.param("git", marks=pytest.mark.slow)])
def test_what_a_place_does_not_take_waits_and_goes_with_the_next_move(
    anchored, kind, released, tmp_path, capsys
):
    (tmp_path / "mount").mkdir()
    store = remote(tmp_path) if kind == "git" else str(tmp_path / "mount" / "worm")
    home, (leave, back) = anchored(store), gone_and_back(store, tmp_path)
    grant(home, "1")
    leave()
    capsys.readouterr()
    assert move(released.id) == 0
    said = capsys.readouterr().err
    for entry in entries(home)[-3:]:
        told = f"warning: entry {entry.seq} is in the ledger, and its anchor could not be sent"
        assert told in said
    assert store in said
    if kind == "git":
        (finding,) = findings(home)
        assert finding.startswith(f"{store}: cannot be read (git ")
    back()
    last = entries(home)[-4].seq
    assert words(home).endswith(f"(1 anchor, up to entry {last}; 3 wait to be sent)")
    assert findings(home) == []
    assert move(released.id, "publish") == 0
    assert "warning" not in capsys.readouterr().err
    assert len(lines(home)) == 6
    assert words(home).endswith(f"(6 anchors, up to entry {entries(home)[-1].seq})")


def grant(home: Home, epsilon: str) -> None:
    open_ledger(home).grant("clubs", "row", epsilon, "1e-5", "year", "A. Officer", "test")


def test_anchors_that_were_removed_are_missed_and_a_line_cut_off_spoils_no_other(
    anchored, released, tmp_path
):
    worm = tmp_path / "worm"
    home = anchored(str(worm))
    worm.write_text('{"payload": "ey')  # by a disk that was full
    assert move(released.id) == 0
    assert words(home).startswith(f"{worm} (3 anchors, ")
    assert words(home).endswith("; 1 line that cannot be read)")
    assert findings(home) == []
    worm.write_text("".join(worm.read_text().splitlines(keepends=True)[:-1]))
    last = entries(home)[-1].seq
    (finding,) = findings(home)
    assert finding == (
        f"{worm}: lacks the anchor of entry {last}, which was sent there: it was cut off or "
        "replaced; restore it, and find out who can write there"
    )
    worm.unlink()
    assert any("lacks the anchor" in finding for finding in findings(home))


@pytest.mark.parametrize("step", [40, pytest.param(5, marks=pytest.mark.slow)])
def test_a_change_of_what_the_home_knows_to_have_sent_is_named(anchored, released, tmp_path, step):
    """With it, the end of the place could be cut off unseen."""
    home = anchored(str(tmp_path / "worm"))
    assert move(released.id) == 0
    (sent,) = (home.folder / "anchors").glob("*.sent")
    waiting = sent.with_suffix(".waiting")
    whole = sent.read_bytes()
    assert b'"payload"' in whole
    known = entries(home)
    for position in range(whole.index(b'"ey') + 1, whole.index(b'"ey') + 200, step):
        for bit in (4, 128):
            altered = bytes([*whole[:position], whole[position] ^ bit, *whole[position + 1 :]])
            for path in (sent, waiting):
                path.write_bytes(altered)
                said = [each for one in compare_stores(home, known, None) for each in one.findings]
                assert any(each.startswith(f"{path}: was altered") for each in said), position
            sent.write_bytes(whole)
            waiting.unlink()
    assert findings(home) == []
    for gone in (sent.unlink, lambda: sent.write_bytes(b"")):
        gone()
        (finding,) = findings(home)
        assert finding.startswith(f"{sent}: is missing")
    assert move(released.id, "publish") == 0
    assert findings(home) == []


def test_two_who_send_at_once_both_push(anchored, tmp_path, released, monkeypatch):
    (store,) = anchor_stores(anchored(remote(tmp_path)))
    fetched, raced = type(store)._fetched, []

    def race(self, folder, *depth):
        last = fetched(self, folder, *depth)
        if depth and not raced:
            raced.append("another")
            store.send(raced)
        return last

    monkeypatch.setattr(type(store), "_fetched", race)
    store.send(["first", "second"])
    assert store.lines() == ["another", "first", "second"]


WRONG = {
    "ftp://host/anchors": "cannot hold anchors",
    "anchors.jsonl": "cannot hold anchors",
    "s3://": "cannot hold anchors",
    "git+http://host/a.git": "cannot hold anchors",
    "git+https://me:secret@host/a.git": "a URL with a password",
    "HOME/anchors": "in the home that it should vouch for",
    "'/worm": "an opening quote",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_place_is_refused_before_anything_is_charged(
    home, released, monkeypatch, capsys, name, tmp_path
):
    before = entries(home)
    monkeypatch.setenv("CLOISTER_ANCHORS", name.replace("HOME", str(home.folder)))
    assert run(quick_release(released.place, "--out", str(tmp_path / "out"))) == 2
    said = capsys.readouterr().err
    assert WRONG[name] in said and "Nothing was charged" in said and "secret" not in said
    with pytest.raises(InputError):
        open_ledger(Home.current())
    monkeypatch.delenv("CLOISTER_ANCHORS")
    assert entries(home) == before


@pytest.mark.parametrize(
    ("name", "lacking", "remedy"),
    [
        ("s3://anchors", "find_spec", "pip install 'cloister[s3]'"),
        ("git+ssh://host/a.git", "shutil.which", "no command git here; install it"),
    ],
)
def test_a_place_that_needs_a_missing_library_is_refused(home, monkeypatch, name, lacking, remedy):
    monkeypatch.setenv("CLOISTER_ANCHORS", name)
    monkeypatch.setattr(f"cloister.tasks.ledger.append_only.{lacking}", lambda _: None)
    with pytest.raises(InputError) as refused:
        open_ledger(Home.current())
    assert remedy in str(refused.value)
