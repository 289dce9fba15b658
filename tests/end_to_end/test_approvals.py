"""Approvals by people's own keys, as their readers meet them; changes of the house's key."""

import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from cloister.errors import CloisterError, NotPermitted, VerificationError
from cloister.flows.cli.app import main
from cloister.privacy import signing
from cloister.privacy.certificate.approval import require_approved
from cloister.privacy.certificate.certificate import read_certificate
from cloister.privacy.certificate.manifest import (
    APPROVAL_NAME,
    RELEASE_TYPE,
    STATEMENTS,
    TRUST_NAME,
    statement_name,
)
from cloister.privacy.ledger import State
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity
from cloister.tasks.ledger.keys import house_signer
from cloister.tasks.release.verify import verify_records


def late_imports():
    global SSlibKey, StockEnvelope, StockRefusal, move_release
    from securesystemslib.dsse import Envelope as StockEnvelope
    from securesystemslib.exceptions import VerificationError as StockRefusal
    from securesystemslib.signer import SSlibKey

    from cloister.flows.review import move_release


@pytest.fixture
def public(home: Home, released) -> Path:
    return home.release(released.id) / "public"


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as done:
        main([str(word) for word in words])
    return int(done.value.code or 0)


@pytest.fixture
def people(home: Home, tmp_path: Path, capsys) -> dict[str, signing.FileSigner]:
    """Three officers with a key each, of whom two must sign; the first is who runs this."""
    (tmp_path / "keys").mkdir(mode=0o700)
    signers = {}
    for name in ("anna", "ben", "cai"):
        private, public = (tmp_path / "keys" / f"{name}.{end}" for end in ("pem", "pub"))
        capsys.readouterr()
        assert run("keys", "make", private) == 0
        public.write_text(capsys.readouterr().out)
        acts = identity() if name == "anna" else name
        given = ("--role", "officer", "--identity", acts, "--key", public, "--reason", "mandate")
        assert run("people", "set", name, *given) == 0
        signers[name] = signing.FileSigner.open(private)
    assert (
        run("rules", "set", "--approvals", "officer=2", "--signed-approvals", "--reason", "p7") == 0
    )
    (tmp_path / "house.pub").write_text(house_signer(home).key.pem)
    return signers


def approve(home: Home, release: str, signer: signing.FileSigner, by: str | None = None) -> str:
    name = signer.path.stem
    acts = by or (identity() if name == "anna" else name)
    return move_release(home, release, "approved", acts, f"{name} read it", str(signer.path))


def third(public: Path, tmp_path: Path, *words: object) -> int:
    """What verify says to someone who has the folder and the house's public key."""
    folder = tmp_path / "third" / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(public, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOISTER_HOME", str(tmp_path / "third" / "home"))
        return run("verify", folder, "--key", tmp_path / "house.pub", *words)


def test_two_of_three_officers_approve_by_their_keys_and_a_stock_verifier_counts_them(
    home, public, people, released, tmp_path, capsys
):
    assert approve(home, released.id, people["ben"]) == "candidate"
    with pytest.raises(NotPermitted, match="Ben approved it before"):
        approve(home, released.id, people["ben"])
    assert third(public, tmp_path) == 4
    assert approve(home, released.id, people["cai"]) == "approved"
    assert third(public, tmp_path) == 0
    assert "approved as of" in capsys.readouterr().out
    assert verify_records(home, None)[1] == []
    envelope = StockEnvelope.from_dict(json.loads((public / APPROVAL_NAME).read_text()))
    keys: list[SSlibKey] = [stock_key(each.key) for each in people.values()]
    assert len(envelope.verify(keys, threshold=2)) == 2
    with pytest.raises(StockRefusal):
        envelope.verify([stock_key(house_signer(home).key)], threshold=1)


def stock_key(key: signing.PublicKey):
    return SSlibKey.from_crypto(load_pem_public_key(key.pem.encode()), keyid=key.id)


FORGERIES = [
    (lambda folder: cut(folder, 1), 4, "missing: one more officer"),
    (lambda folder: (folder / TRUST_NAME).unlink(), 1, "vouches for no version"),
    (lambda folder: (folder / APPROVAL_NAME).unlink(), 1, "is not a file"),
    (lambda folder: roles_of_a_forger(folder), 1, "vouches for no version"),
]


def test_an_approval_that_was_forged_is_named(home, public, people, released, tmp_path, capsys):
    for name in ("ben", "cai"):
        approve(home, released.id, people[name])
    kept = shutil.copytree(public, tmp_path / "kept")
    for forge, code, words in FORGERIES:
        forge(public)
        capsys.readouterr()
        assert third(public, tmp_path) == code, words
        assert words in capsys.readouterr().out.replace("\n", " ")
        assert any(APPROVAL_NAME in each or words in each for each in verify_records(home, None)[1])
        shutil.copytree(kept, public, dirs_exist_ok=True)
    assert verify_records(home, None)[1] == []


def cut(folder: Path, number: int) -> None:
    envelope = json.loads((folder / APPROVAL_NAME).read_text())
    envelope["signatures"] = envelope["signatures"][:number]
    (folder / APPROVAL_NAME).write_text(json.dumps(envelope))


def roles_of_a_forger(folder: Path) -> None:
    lines = (folder / TRUST_NAME).read_text().splitlines()
    (folder / TRUST_NAME).write_text(lines[0].replace('"sig": "', '"sig": "AAAA') + "\n")


def test_what_people_and_keys_signed_is_named_where_it_is_lost_before_the_last_approval(
    home, public, people, released, tmp_path
):
    approve(home, released.id, people["ben"])
    assert run("keys", "rotate", "--reason", "each January") == 0
    assert verify_records(home, None)[1] == []
    approval, trust = public / APPROVAL_NAME, public / TRUST_NAME
    whole = approval.read_bytes()
    forged = signing.sign(signing.read_envelope(approval).payload, people["cai"])
    signing.write_envelope(approval, forged, replace=True)
    assert any("lacks a signature" in finding for finding in verify_records(home, None)[1])
    approval.unlink()
    assert any(str(approval) in finding for finding in verify_records(home, None)[1])
    approval.write_bytes(whole)
    for change in (lambda: trust.write_bytes(trust.read_bytes()[:-9]), trust.unlink):
        change()
        assert any(str(trust) in finding for finding in verify_records(home, None)[1])
    trust.write_bytes((home.folder / "signing" / TRUST_NAME).read_bytes())
    assert verify_records(home, None)[1] == []


def test_a_revoked_key_counts_where_the_ledger_shows_that_it_signed_before(
    home, public, people, released, tmp_path, capsys
):
    for name in ("ben", "cai"):
        approve(home, released.id, people[name])
    pub = people["ben"].path.with_suffix(".pub")
    assert run("keys", "revoke", pub, "--reason", "stolen") == 0
    assert run("fetch", released.id, "--out", tmp_path / "again") == 0
    assert run("ledger", "export", tmp_path / "ledger.jsonl") == 0
    assert third(tmp_path / "again", tmp_path) == 4
    assert "1 revoked since, and not shown to be older" in capsys.readouterr().out
    assert third(tmp_path / "again", tmp_path, "--ledger", tmp_path / "ledger.jsonl") == 0
    assert verify_records(home, None)[1] == []


def test_nobody_approves_without_a_key_of_their_own_that_is_not_revoked(home, people, released):
    for key in ("", str(people["cai"].path), str(home.folder / "signing" / "house.pem")):
        refused = "and ben acts, whose key is" if key else "Ben approves by their own key"
        with pytest.raises(NotPermitted, match=refused):
            move_release(home, released.id, "approved", "ben", "why", key)
    assert run("keys", "revoke", people["ben"].path.with_suffix(".pub"), "--reason", "stolen") == 0
    with pytest.raises(NotPermitted, match="The key of ben is revoked"):
        approve(home, released.id, people["ben"])
    people["ben"].path.unlink()
    assert run("keys", "make", people["ben"].path) == 0
    new = signing.FileSigner.open(people["ben"].path)
    pub = people["ben"].path.with_suffix(".pub")
    pub.write_text(new.key.pem)
    assert run("people", "set", "ben", "--key", pub, "--reason", "a new laptop") == 0
    assert approve(home, released.id, new) == "candidate"


def test_the_house_changes_its_key_and_holders_of_either_half_follow(
    home, public, people, released, tmp_path, capsys
):
    assert approve(home, released.id, people["ben"]) == "candidate"
    capsys.readouterr()
    assert run("keys", "rotate", "--reason", "each January") == 0
    assert approve(home, released.id, people["cai"]) == "approved"
    assert verify_records(home, None)[1] == []
    assert third(public, tmp_path) == 0
    (tmp_path / "house.pub").write_text(house_signer(home).key.pem)
    assert third(public, tmp_path) == 0
    assert run("ledger", "export", tmp_path / "ledger.jsonl") == 0
    assert third(public, tmp_path, "--ledger", tmp_path / "ledger.jsonl") == 0


STEPS = [pytest.param("trust", marks=pytest.mark.slow), "update_trust"]
STEPS += [pytest.param("house_signer", marks=pytest.mark.slow)]


@pytest.mark.parametrize("step", STEPS)
def test_a_change_of_the_key_that_was_killed_is_finished_by_the_next(
    home, public, released, tmp_path, monkeypatch, step
):
    (tmp_path / "house.pub").write_text(house_signer(home).key.pem)
    move_release(home, released.id, "approved", "officer", "why")
    with monkeypatch.context() as patch:
        patch.setattr(f"cloister.tasks.ledger.people.{step}", killed)
        assert run("keys", "rotate", "--reason", "why") == 130
    assert run("keys", "rotate", "--reason", "why") == 0
    assert run("fetch", released.id, "--out", tmp_path / "again") == 0
    assert verify_records(home, None)[1] == []
    assert third(tmp_path / "again", tmp_path) == 0


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_first_of_two_approvals_is_told_with_who_and_why(
    home, public, people, released, tmp_path, capsys
):
    token = ("people", "token", "ben", "--days", "30", "--reason", "from home")
    assert run(*token) == 0
    approve(home, released.id, people["ben"])
    assert run("ledger", "export", tmp_path / "ledger.jsonl") == 0
    told = {
        "show": ("ledger", "show", released.id),
        "review": ("review", "show", released.id),
        "report": ("report", released.id),
        "trail": (
            *("trail", public, "--ledger", tmp_path / "ledger.jsonl"),
            *("--key", tmp_path / "house.pub", "--json"),
        ),
    }
    for name, words in told.items():
        capsys.readouterr()
        run(*words)
        said = " ".join(capsys.readouterr().out.split())
        assert "approved (officer 1 of 2)" in said and "ben read it" in said, name
        assert "consented" not in said
    assert "ben: token issued (valid until 20" in said


def forged(public: Path, folder: Path, thief: signing.FileSigner) -> Path:
    """Other rows under a certificate, a manifest and statements that were all made anew."""
    shutil.copytree(public, folder)
    table = folder / "synthetic.parquet"
    before = hashlib.sha256(table.read_bytes()).hexdigest()
    table.write_bytes(table.read_bytes()[::-1])
    after = hashlib.sha256(table.read_bytes()).hexdigest()
    for name in ("certificate.yaml", "certificate.html"):
        text = (folder / name).read_text(encoding="utf-8").replace(before, after)
        (folder / name).write_text(text, encoding="utf-8")
    manifest = json.loads((folder / "manifest.json").read_text())
    for record in manifest["files"]:
        record["sha256"] = hashlib.sha256((folder / record["path"]).read_bytes()).hexdigest()
    del manifest["digest"]
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    manifest["digest"] = hashlib.sha256(canonical.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    for state in (State.CANDIDATE, State.APPROVED):
        path = folder / statement_name(state)
        facts = signing.read_statement(signing.read_envelope(path)).facts(RELEASE_TYPE)
        payload = signing.make_statement(
            signing.folder_digests(folder, STATEMENTS), RELEASE_TYPE, facts
        )
        signing.write_envelope(path, signing.sign(payload, thief), replace=True)
    return folder


def test_a_stolen_key_of_the_house_forges_neither_a_folder_nor_a_model(
    home, public, released, tmp_path, capsys
):
    (tmp_path / "stolen").mkdir(mode=0o700)
    shutil.copy(home.folder / "signing" / "house.pem", tmp_path / "stolen" / "house.pem")
    thief = signing.FileSigner.open(tmp_path / "stolen" / "house.pem")
    move_release(home, released.id, "approved", "officer", "why")
    assert run("keys", "rotate", "--reason", "the key was copied") == 0
    (tmp_path / "stolen" / "house.pub").write_text(thief.key.pem)
    assert run("keys", "revoke", tmp_path / "stolen" / "house.pub", "--reason", "stolen") == 0
    assert run("fetch", released.id, "--out", tmp_path / "sound") == 0
    assert run("ledger", "export", tmp_path / "ledger.jsonl") == 0
    (tmp_path / "house.pub").write_text(house_signer(home).key.pem)
    ledger = ("--ledger", tmp_path / "ledger.jsonl")
    assert third(tmp_path / "sound", tmp_path) == third(tmp_path / "sound", tmp_path, *ledger) == 0
    assert f"signed by {house_signer(home).key.id[:16]}" in capsys.readouterr().out

    folder = forged(tmp_path / "sound", tmp_path / "forged", thief)
    assert (third(folder, tmp_path), third(folder, tmp_path, *ledger)) == (1, 1)
    lines = (folder / TRUST_NAME).read_text().splitlines(keepends=True)
    (folder / TRUST_NAME).write_text("".join(lines[:-1]))  # all but the revocation
    capsys.readouterr()
    assert third(folder, tmp_path) == 3, capsys.readouterr().out
    assert "a former key of the house" in capsys.readouterr().out
    assert third(folder, tmp_path, *ledger) == 1
    words = ("--ledger", tmp_path / "ledger.jsonl", "--key", tmp_path / "house.pub")
    assert run("trail", folder, *words) == 1
    model = read_certificate(folder).model
    with pytest.raises(VerificationError, match="a former key of the house that may be stolen"):
        require_approved(folder, model, house_signer(home).key)
    assert require_approved(tmp_path / "sound", model, house_signer(home).key)["by"] == "officer"


EVENTS = ("approve", "rotate", "publish", "revoke", "withdraw")


def possible(order: tuple[str, ...]) -> bool:
    """Whether each event may follow those before it: a former key is revoked, say."""
    place = {event: order.index(event) if event in order else len(order) for event in EVENTS}
    after = (("rotate", "revoke"), ("approve", "publish"))
    return all(place[first] < place[last] or last not in order for first, last in after) and all(
        place[event] < place["withdraw"] or event not in order for event in ("approve", "publish")
    )


ORDERS = [order for order in permutations(EVENTS, 4) if possible(order)]
USUAL = ("approve", "rotate", "publish", "revoke")


@pytest.mark.parametrize(
    "order",
    [pytest.param(order, marks=[pytest.mark.slow] * (order != USUAL)) for order in ORDERS],
    ids=" ".join,
)
def test_a_release_stays_what_it_is_in_every_order_of_events(
    home, public, people, released, tmp_path, capsys, order
):
    """Approvals by people's keys, changes and revocations of the house's, and later decisions."""
    former = shutil.copy(tmp_path / "house.pub", tmp_path / "former.pub")
    state = "candidate"
    for event in order:
        if event == "approve":
            approve(home, released.id, people["ben"])
            state = approve(home, released.id, people["cai"])
        elif event == "rotate":
            assert run("keys", "rotate", "--reason", "each January") == 0
        elif event == "revoke":
            assert run("keys", "revoke", former, "--reason", "stolen") == 0
        else:
            state = {"publish": "published", "withdraw": "withdrawn"}[event]
            move_release(home, released.id, state, identity(), "because")
        assert verify_records(home, None)[1] == [], event
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        (tmp_path / "ledger.jsonl").unlink(missing_ok=True)
        shutil.copytree(public, tmp_path / "copy")
        assert run("ledger", "export", tmp_path / "ledger.jsonl") == 0
        sound = 0 if state in ("approved", "published") else 4
        (tmp_path / "house.pub").write_text(house_signer(home).key.pem)
        for words in ((), ("--ledger", tmp_path / "ledger.jsonl")):
            capsys.readouterr()
            assert third(tmp_path / "copy", tmp_path, *words) == sound, (
                event,
                capsys.readouterr().out,
            )


def test_one_person_with_two_roles_signs_for_one_of_them(
    home, public, people, released, tmp_path, capsys
):
    for name, roles in (("ben", ("officer", "reviewer")), ("cai", ("reviewer",))):
        words = [word for role in roles for word in ("--role", role)]
        assert run("people", "set", name, *words, "--reason", "mandate") == 0
    needed = ("--approvals", "officer=1", "--approvals", "reviewer=1")
    assert run("rules", "set", *needed, "--reason", "p8") == 0
    assert approve(home, released.id, people["ben"]) == "candidate"
    assert approve(home, released.id, people["cai"]) == "approved"
    assert third(public, tmp_path) == 0
    cut(public, 1)
    capsys.readouterr()
    assert third(public, tmp_path) == 4
    assert "missing: one more" in capsys.readouterr().out


def test_a_refused_approval_leaves_no_signature(home, public, people, released):
    before = [path.name for path in public.iterdir()]
    with pytest.raises(NotPermitted, match="of cai signed, and ben acts"):
        approve(home, released.id, people["cai"], by="ben")
    assert [path.name for path in public.iterdir()] == before
    approve(home, released.id, people["ben"])
    signed = (public / APPROVAL_NAME).read_bytes()
    with pytest.raises(NotPermitted, match="Ben approved it before"):
        approve(home, released.id, people["ben"])
    with pytest.raises(NotPermitted, match="of cai signed, and anna acts"):
        approve(home, released.id, people["cai"], by=identity())
    assert (public / APPROVAL_NAME).read_bytes() == signed


def test_an_approval_beside_a_rejection_ends_as_one_of_them(home, public, people, released):
    def decide(state: str) -> str:
        try:
            return move_release(home, released.id, state, "ben", "why", keys[state])
        except CloisterError as error:
            return str(error)

    keys = {"approved": str(people["ben"].path), "rejected": ""}
    with ThreadPoolExecutor(2) as threads:
        ends = [*threads.map(decide, ("approved", "rejected"))]
    assert ends[1] == "rejected"
    assert ends[0] == "candidate" or "cannot become approved" in ends[0]
    assert verify_records(home, None)[1] == []
