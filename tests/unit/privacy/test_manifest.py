"""A manifest names every file that was altered, is missing or does not belong."""

from dataclasses import replace
from pathlib import Path

import pytest

from cloister.errors import StorageError, VerificationError
from cloister.privacy.certificate.manifest import (
    Lineage,
    Manifest,
    read_manifest,
    verify_folder,
    write_manifest,
)
from cloister.privacy.ledger import Anchor

LINEAGE = Lineage(Anchor(3, "ab" * 32), "0.1.0+0123", "cd" * 32, "run-1", "flow-1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    release = tmp_path / "release"
    (release / "tables").mkdir(parents=True)
    (release / "synthetic.parquet").write_bytes(bytes(range(256)) * 4)
    (release / "certificate.yaml").write_text("certificate: 1\n")
    (release / "tables" / "ünïcode name.csv").write_text("a,b\n1,2\n")
    write_manifest(release, "r-1", LINEAGE)
    return release


def test_a_folder_as_written_is_sound(folder: Path):
    manifest = read_manifest(folder)
    assert [record.path for record in manifest.files] == [
        "certificate.yaml",
        "synthetic.parquet",
        "tables/ünïcode name.csv",
    ]
    assert [record.size for record in manifest.files] == [15, 1024, 8]
    assert manifest.lineage == LINEAGE
    assert verify_folder(folder, manifest.digest) == []


def test_every_altered_byte_is_found_and_its_file_named(folder: Path):
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        for offset in range(0, len(content), 1 if path.name == "manifest.json" else 7):
            path.write_bytes(
                content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :]
            )
            assert [finding.file for finding in verify_folder(folder)] == [
                path.relative_to(folder).as_posix()
            ]
        path.write_bytes(content)
    assert verify_folder(folder) == []


def test_missing_extra_longer_shorter_and_linked_files_are_named(folder: Path, tmp_path: Path):
    def said() -> list[str]:
        return [str(finding) for finding in verify_folder(folder)]

    (folder / "synthetic.parquet").rename(tmp_path / "same")
    (folder / "note.txt").write_text("extra")
    (folder / "empty").mkdir()
    extra = [f"{name}: is not part of the release" for name in ("empty", "note.txt")]
    assert said() == [*extra, "synthetic.parquet: is missing"]
    (folder / "synthetic.parquet").symlink_to(tmp_path / "same")
    assert said() == [*extra, "synthetic.parquet: was altered"]
    (folder / "synthetic.parquet").unlink()
    (folder / "synthetic.parquet").write_bytes(b"")
    with (folder / "certificate.yaml").open("a") as file:
        file.write("\n")
    changed = ("certificate.yaml", "synthetic.parquet")
    assert said() == sorted([*extra, *(f"{name}: was altered" for name in changed)])


def test_writing_again_gives_the_same_bytes_and_of_other_files_not_the_recorded_ones(folder):
    before, recorded = (folder / "manifest.json").read_bytes(), read_manifest(folder).digest
    write_manifest(folder, "r-1", LINEAGE)
    assert (folder / "manifest.json").read_bytes() == before
    (folder / "certificate.yaml").write_text("certificate: 2\n")
    write_manifest(folder, "r-1", LINEAGE)
    assert [str(finding) for finding in verify_folder(folder, recorded)] == [
        "manifest.json: was replaced: the ledger recorded another one"
    ]


def test_a_folder_without_a_manifest_or_with_a_damaged_one_or_links_is_refused(folder: Path):
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(VerificationError, match="altered"):
        read_manifest(folder)
    (folder / "manifest.json").unlink()
    assert [str(finding) for finding in verify_folder(folder)] == ["manifest.json: is missing"]
    with pytest.raises(StorageError, match=r"manifest\.json cannot be read"):
        read_manifest(folder)
    (folder / "link").symlink_to(folder.parent)
    with pytest.raises(StorageError, match="plain file"):
        write_manifest(folder, "r-1", LINEAGE)


OLDER = """{
  "manifest": 1,
  "release": "r-1",
  "lineage": {
    "ledger": {
      "seq": 3,
      "hash": "ab"
    },
    "code": "0.1.0",
    "spec_digest": "cd",
    "mlflow_run": "",
    "prefect_run": ""
  },
  "files": [],
  "digest": "DIGEST"
}
"""


def test_a_manifest_of_an_older_version_reads_and_writes_as_before():
    digest = "09e2d04062aa59c44189638a1ba610cb25f02feb3d3d74d3769600953bb09cd2"
    older = Manifest.from_json(OLDER.replace("DIGEST", digest))
    assert (older.lineage.model, older.lineage.kept, older.digest) == ("", "", digest)


def test_the_model_and_what_is_kept_are_part_of_the_digest(folder: Path):
    plain = read_manifest(folder).digest
    for more in ({"model": "ef" * 32}, {"kept": "01" * 32}):
        manifest = write_manifest(folder, "r-1", replace(LINEAGE, **more))
        assert manifest.digest != plain and read_manifest(folder).lineage == manifest.lineage
