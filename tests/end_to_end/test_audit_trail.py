"""docs/audit-trail.md: the story of a release from folder, key and export, without the home."""

import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloister.flows.cli.app import run
from cloister.privacy.certificate.manifest import Lineage, read_manifest, write_manifest
from cloister.privacy.ledger.entries import Entry, read_chain, signed_body
from cloister.privacy.signing import FileSigner
from cloister.tasks.home.files import digest_of
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.keys import house_signer


def late_imports():
    global move_release
    from cloister.flows.review import move_release


PAGE = Path(__file__).parents[2] / "docs" / "audit-trail.md"
COMMANDS = [
    shlex.split(line)[1:]
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def audited(released, tmp_path_factory) -> tuple[Home, Path]:
    """A home with a published release; the desk of an auditor: folder, public key and export."""
    folder = tmp_path_factory.mktemp("audited")
    shutil.copytree(released.place.home.folder, folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOISTER_HOME", str(folder / "home"))
        home, desk = Home.current(), folder / "desk"
        move_release(home, released.id, "approved", "officer", "checked the certificate")
        move_release(home, released.id, "published", "officer", "to the ministry")
        shutil.copytree(home.release(released.id) / "public", desk / "folder")
        (desk / "house.pub").write_text(house_signer(home).key.pem)
        assert run(["ledger", "export", str(desk / "ledger.jsonl")]) == 0
    return home, desk


@pytest.fixture
def auditor(audited, released, tmp_path, monkeypatch) -> SimpleNamespace:
    """Someone with a copy of the desk, and no home."""
    home, kept = audited
    desk = shutil.copytree(kept, tmp_path / "desk")
    monkeypatch.chdir(desk)
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "nowhere"))
    return SimpleNamespace(desk=desk, home=home, release=released.id)


def test_the_commands_of_the_page_tell_whose_data_which_budget_who_and_why(auditor, capsys):
    for command in COMMANDS:
        capsys.readouterr()
        assert run(command) == 0, command
    said = " ".join(capsys.readouterr().out.split())
    for words in (auditor.release, "published as of", "checked the certificate", "to the ministry"):
        assert words in said
    assert not (auditor.desk.parent / "nowhere" / "ledger.db").exists()
    assert run([*COMMANDS[-1], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    facts = told["facts"]
    assert facts["protects"] == "row, under add_remove"
    assert facts["data"].endswith(".csv")
    assert facts["charge"].startswith("epsilon ")
    assert "per " in facts["budget then"]
    steps = [(step["what"].split(":")[0].split(" for ")[0], step["by"]) for step in told["steps"]]
    first = ("account opened", "budget granted", "reserved")
    assert steps[:3] == [(what, steps[0][1]) for what in first]
    assert ("approved", "officer") in steps
    entries = [step["entry"] for step in told["steps"]]
    assert entries == sorted(entries, key=int)


def altered_folder(auditor: SimpleNamespace) -> None:
    """A table and the certificate are altered, and the manifest fits them."""
    folder = auditor.desk / "folder"
    table, manifest = folder / "synthetic.parquet", read_manifest(folder)
    before = digest_of(table)
    table.write_bytes(table.read_bytes() + b"salaries")
    certificate = folder / "certificate.yaml"
    certificate.write_text(certificate.read_text().replace(before, digest_of(table)))
    (folder / "manifest.json").unlink()
    assert isinstance(manifest.lineage, Lineage)
    write_manifest(folder, manifest.release, manifest.lineage)


def rebuilt(auditor: SimpleNamespace, forger: FileSigner | None = None) -> None:
    """The export names another approver, and all hashes after it are computed anew."""
    path = auditor.desk / "ledger.jsonl"
    before: Entry | None = None
    lines = []
    for entry in read_chain(path.read_bytes().splitlines())[0]:
        body = dict(entry.body)
        if entry.kind == "approved":
            body["by"] = "nobody"
        made = Entry.after(before, entry.time, entry.kind, entry.slot, body)
        if forger and made != entry:
            del body["signed"]
            made = Entry.after(before, entry.time, entry.kind, entry.slot, body)
            made = Entry.after(
                before, entry.time, entry.kind, entry.slot, signed_body(made, forger)
            )
        lines.append(made.line + "\n")
        before = made
    path.write_text("".join(lines))


def signed_anew(auditor: SimpleNamespace) -> None:
    rebuilt(auditor, FileSigner.open(auditor.desk / "forger.pem"))


def sheet_of_another(auditor: SimpleNamespace) -> None:
    path = auditor.desk / "folder" / "published.dsse.json"
    shutil.copyfile(auditor.desk / "folder" / "candidate.dsse.json", path)


def another_key(auditor: SimpleNamespace) -> None:
    (auditor.desk / "house.pub").write_text(FileSigner.open(auditor.desk / "other.pem").key.pem)


def withdrawn(auditor: SimpleNamespace) -> None:
    """The house withdraws the release, and exports its ledger anew."""
    copy = shutil.copytree(auditor.home.folder, auditor.desk.parent / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOISTER_HOME", str(copy))
        move_release(Home.current(), auditor.release, "withdrawn", "officer", "a wrong bound")
        assert run(["ledger", "export", str(auditor.desk / "ledger.jsonl")]) == 0


@pytest.mark.parametrize(
    ("forge", "code", "words"),
    [
        (altered_folder, 1, "certificate.yaml: was altered"),
        (rebuilt, 1, "its signature does not verify"),
        (signed_anew, 1, "which the house does not trust"),
        (sheet_of_another, 1, "published.dsse.json: is of another state"),
        (another_key, 1, "none of its entries is signed by the key"),
        (withdrawn, 4, "withdrawn, as the ledger says"),
    ],
    ids=["folder", "chain", "signed chain", "sheet", "key", "withdrawn"],
)
def test_each_forgery_is_found_and_named(auditor, capsys, forge, code, words):
    forge(auditor)
    capsys.readouterr()
    assert run(COMMANDS[-1]) == code
    verified = ["verify", "folder", "--key", "house.pub"]
    if forge in (altered_folder, sheet_of_another):
        assert run(verified) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert words in said
    assert code == 1 or "a wrong bound" in said
