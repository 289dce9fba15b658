"""A signed statement names each file of a folder: what differs from it is found and named."""

import os
from pathlib import Path

import pytest
from signing_keys import CERTIFICATE, FACTS, FILES, payload, signer

from cloister.errors import StorageError
from cloister.privacy import signing

ADA = signer("ada")
SEAL = "certificate.dsse.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    release = tmp_path / "release"
    (release / "tables").mkdir(parents=True)
    (release / "certificate.yaml").write_text("certificate: 1\n")
    (release / "tables" / "ünïcode name.csv").write_text("a,b\n1,2\n")
    return release


def test_a_folder_is_signed_and_compared_and_names_that_a_terminal_would_obey_are_escaped(folder):
    assert signing.folder_digests(folder) == FILES
    envelope = signing.sign(
        signing.make_statement(signing.folder_digests(folder), CERTIFICATE, FACTS), ADA
    )
    signing.write_envelope(folder / SEAL, envelope)
    statement = signing.read_statement(envelope)
    assert not signing.compare_folder(statement, folder, {SEAL})
    assert signing.compare_folder(statement, folder).added == (SEAL,)
    assert signing.folder_digests(folder, {SEAL}) == FILES
    (folder / "\x1b[2Japproved").write_text("")
    (folder / os.fsdecode(b"\xff")).write_text("")
    assert str(signing.compare_folder(statement, folder, {SEAL})).splitlines() == [
        "\\x1b[2Japproved: was added",
        "\\udcff: was added",
    ]


def test_files_altered_missing_and_added_are_named(folder: Path):
    statement = signing.read_statement(signing.sign(payload(), ADA))
    (folder / "certificate.yaml").write_text("certificate: 2\n")
    (folder / "tables" / "ünïcode name.csv").unlink()
    (folder / ".hidden").write_text("")
    difference = signing.compare_folder(statement, folder)
    assert difference
    assert difference.altered == ("certificate.yaml",)
    assert difference.missing == ("tables/ünïcode name.csv",)
    assert difference.added == (".hidden", "tables")
    assert str(difference).splitlines() == [
        "certificate.yaml: was altered",
        "tables/ünïcode name.csv: is missing",
        ".hidden: was added",
        "tables: was added",
    ]


def test_each_altered_byte_of_a_folder_is_found(folder: Path):
    statement = signing.read_statement(signing.sign(payload(), ADA))
    for name in FILES:
        content = (folder / name).read_bytes()
        for offset in range(len(content)):
            altered = bytearray(content)
            altered[offset] ^= 1
            (folder / name).write_bytes(altered)
            assert signing.compare_folder(statement, folder).altered == (name,)
        (folder / name).write_bytes(content)
    assert not signing.compare_folder(statement, folder)


def test_links_and_devices_are_not_files(folder: Path):
    statement = signing.read_statement(signing.sign(payload(), ADA))
    (folder / "certificate.yaml").rename(folder.parent / "certificate.yaml")
    (folder / "certificate.yaml").symlink_to(folder.parent / "certificate.yaml")
    os.mkfifo(folder / "pipe")
    (folder / "more").symlink_to(folder / "tables")
    difference = signing.compare_folder(statement, folder)
    assert (difference.altered, difference.missing) == (("certificate.yaml",), ())
    assert difference.added == ("more", "pipe")
    with pytest.raises(StorageError, match=r"certificate\.yaml of .* is not a plain file"):
        signing.folder_digests(folder)
    with pytest.raises(StorageError, match="is not a folder"):
        signing.compare_folder(statement, folder / "no")
