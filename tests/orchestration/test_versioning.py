"""Pointers of each release in DVC, which never copies the input or touches the project's Git."""

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import yaml
from listeners import silent_listener, webhook_receiver

from cloister.errors import StorageError, VerificationError
from cloister.tasks.home.home import Home, close, open_to_others
from cloister.tasks.stores import dvc_store
from cloister.tasks.stores.dvc_store import Versions


@pytest.fixture(scope="module", autouse=True)
def _forks(stores):
    """Versions run DVC in forks of a process that has loaded it, which writes all pointers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dvc_store.subprocess, "by_dvc", True)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def versions(place: Path) -> Versions:
    """The repository of a prepared home: what this process makes is its owner's alone."""
    home = Home.current({"CLOISTER_HOME": str(place / "home")})
    home.prepare()
    return Versions(home.versions, home.remote)


@pytest.fixture(scope="module")
def files(place: Path) -> dict[str, Path]:
    paths = {
        "input": "in put #1.csv",
        "synthetic": "synthetic.parquet",
        "certificate": "certificate.yaml",
    }
    for name, path in paths.items():
        (place / path).write_text(f"content of {name}\n" * 100)
    return {name: place / path for name, path in paths.items()}


@pytest.fixture(scope="module")
def pointers(versions: Versions, files: dict[str, Path]) -> Path:
    return tracked(versions, "r-1", files)


def tracked(versions: Versions, release: str, files: dict[str, Path]) -> Path:
    return versions.track(release, [files["input"]], public(files))


def public(files: dict[str, Path]) -> dict[str, Path]:
    return {name: files[name] for name in ("synthetic", "certificate")}


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def remote_files(versions: Versions) -> set[str]:
    found = (path for path in Path(versions.remote).rglob("*") if path.is_file())
    return {path.parent.name + path.name for path in found}


def dvc(versions: Versions, *words: str) -> str:
    command = [sys.executable, "-m", "dvc", *words]
    environment = os.environ | {
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(versions.folder / "site"),
        "COLUMNS": "1000",  # or long paths are folded
    }
    done = subprocess.run(
        command, cwd=versions.folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_release_has_three_pointers(pointers: Path, files: dict[str, Path]):
    names = sorted(path.name for path in pointers.iterdir())
    assert names == ["certificate.dvc", "input.dvc", "synthetic.dvc"]
    source = yaml.safe_load((pointers / "input.dvc").read_text())["deps"][0]
    assert (source["md5"], source["size"]) == (md5(files["input"]), files["input"].stat().st_size)
    assert source["path"] == str(files["input"])
    for name in ("synthetic", "certificate"):
        out = yaml.safe_load((pointers / f"{name}.dvc").read_text())["outs"][0]
        assert out["md5"] == md5(files[name])


def test_the_remote_holds_what_was_sent_and_not_the_input(versions, pointers, files):
    before = {path: path.read_bytes() for path in pointers.iterdir()}
    assert remote_files(versions) == set()
    for _ in range(2):
        versions.send("r-1", public(files))
        assert remote_files(versions) == {md5(files["synthetic"]), md5(files["certificate"])}
    assert {path: path.read_bytes() for path in pointers.iterdir()} == before
    assert not (versions.folder / ".dvc" / "cache").exists()


def test_a_file_that_its_pointer_does_not_know_is_not_sent(versions, pointers, files, place):
    altered, before = place / "altered.yaml", remote_files(versions)
    altered.write_text("another certificate\n")
    with pytest.raises(VerificationError, match="nothing was sent"):
        versions.send("r-1", public(files) | {"certificate": altered})
    assert remote_files(versions) == before


def test_dvc_fetches_what_was_sent_and_neither_copies_nor_sends_the_input(
    versions: Versions, pointers: Path, files: dict[str, Path], place: Path
):
    """Of several tables neither, whatever a person runs in the home by hand."""
    several = [files["input"], place / "other table.csv"]
    several[1].write_text("content of the other\n" * 100)
    folder = versions.track("r-several", several, {})
    assert [path.name for path in folder.iterdir()] == ["input.dvc"]
    named = yaml.safe_load((folder / "input.dvc").read_text())["deps"]
    assert [(dep["path"], dep["md5"]) for dep in named] == [(str(p), md5(p)) for p in several]
    versions.send("r-1", public(files))
    for command in ("pull", "push"):
        dvc(versions, command)
    for source in several:
        assert copies(source, place) == [source]
    assert dvc(versions, "status").strip() == "Data and pipelines are up to date."
    several[1].write_text("changed\n")
    assert "other table.csv" in dvc(versions, "status")
    for name, pulled in (("synthetic", "synthetic.parquet"), ("certificate", "certificate.yaml")):
        assert (pointers / pulled).read_bytes() == files[name].read_bytes()
        (pointers / pulled).unlink()
    shutil.rmtree(folder)
    versions.clear()
    for folder in (versions.folder, Path(versions.remote)):
        close(folder)  # DVC's own command opens what it reads


def copies(source: Path, place: Path) -> list[Path]:
    """The files under a folder that hold another's content."""
    content = source.read_bytes()
    return [path for path in place.rglob("*") if path.is_file() and content in path.read_bytes()]


def test_a_resumed_release_writes_its_pointers_anew(files: dict[str, Path], tmp_path: Path):
    versions = Versions(tmp_path / "home" / "dvc", str(tmp_path / "home" / "dvc-remote"))
    pointers = tracked(versions, "r-1", files)
    altered = tmp_path / "altered" / "synthetic.parquet"
    altered.parent.mkdir()
    altered.write_text("another table")
    killed = Path(versions.remote) / "files" / "md5" / "ab" / ".of-a-killed-process.tmp"
    killed.parent.mkdir(parents=True)
    killed.write_text("half")
    files = files | {"synthetic": altered}
    tracked(versions, "r-1", files)
    versions.send("r-1", public(files))
    (out,) = yaml.safe_load((pointers / "synthetic.dvc").read_text())["outs"]
    assert out["md5"] == md5(altered)
    assert len(list(pointers.glob("*.dvc"))) == 3
    assert not killed.exists()


def test_releases_at_once_wait_for_each_other(versions: Versions, files: dict[str, Path]):
    """Those of a database have no pointer to an input."""
    published = {"certificate": files["certificate"]}
    with ThreadPoolExecutor(2) as pool:
        tracked = pool.map(lambda name: versions.track(name, [], published), ("r-3", "r-4"))
        folders = list(tracked)
    for folder in folders:
        assert [path.name for path in folder.iterdir()] == ["certificate.dvc"]


def test_analytics_are_off_git_is_not_used_and_nothing_is_open_to_others(versions, pointers):
    config = (versions.folder / ".dvc" / "config").read_text()
    assert "analytics = false" in config
    assert "no_scm = True" in config
    assert not list(versions.folder.rglob(".gitignore"))
    assert (versions.folder / "site" / "repo").is_dir()
    for folder in (versions.folder, Path(versions.remote)):
        assert list(open_to_others(folder)) == []


def test_failures_are_one_clear_error(versions: Versions, pointers: Path, place: Path):
    with pytest.raises(StorageError, match="DVC cannot commit"):
        versions.track("r-9", [place / "missing.csv"], {})
    (place / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be made"):
        Versions(place / "file" / "dvc", str(place / "remote")).track("r-1", [], {})
    with pytest.raises(StorageError, match="quotes"):  # which settings cannot hold
        Versions(place / "dvc", f'{place}/it\'s "here"').prepare()


@pytest.mark.slow
def test_a_repository_whose_making_was_interrupted_is_made(tmp_path: Path, monkeypatch):
    """In a place of any letters: DVC's own command writes none beyond ASCII into its settings."""
    monkeypatch.setattr(dvc_store, "subprocess", subprocess)  # as it runs for users
    name = "hömé ☃ #1, [x]"
    made = Versions(tmp_path / name / "dvc", str(tmp_path / name / "remote"))
    (made.folder / ".dvc").mkdir(parents=True)
    (made.folder / ".new" / ".dvc").mkdir(parents=True)
    (made.folder / ".new" / ".dvc" / "config").write_text("[core")
    made.prepare()
    name, *remote, default = dvc(made, "remote", "list").split()
    assert (name, remote, default) == ("storage", made.remote.split(), "(default)")
    before = (made.folder / ".dvc" / "config").stat().st_mtime_ns
    made.prepare()
    config = made.folder / ".dvc" / "config"
    assert config.stat().st_mtime_ns == before
    whole = config.read_bytes()
    config.write_bytes(whole + b"\xff\x00\xd8")  # what is no text is written anew
    made.prepare()
    assert config.read_bytes() == whole


@pytest.mark.slow
def test_files_of_any_name_are_tracked(tmp_path: Path):
    made = Versions(tmp_path / "hömé ☃ #1" / "dvc", str(tmp_path / "rémote #1"))
    source = tmp_path / f"dätä #1 100%.{'x' * 200}"
    source.write_text("content\n")
    published = tmp_path / "ö" / "synthetic.parquet"
    published.parent.mkdir()
    published.write_text("rows\n")
    pointers = made.track("r-1", [source], {"synthetic": published})
    made.send("r-1", {"synthetic": published})
    assert sorted(path.name for path in pointers.iterdir()) == ["input.dvc", "synthetic.dvc"]
    assert remote_files(made) == {md5(published)}
    assert not [path for path in made.folder.rglob("*.parquet*") if path.is_file()]
    assert not (made.folder / ".dvc" / "cache").exists()


def test_the_committed_lock_is_of_these_stages():
    """Their outputs and parameters are as dvc.yaml and params.yaml declare them."""
    root = Path(__file__).parents[2]
    declared, lock, params = (
        yaml.safe_load((root / name).read_text())
        for name in ("dvc.yaml", "dvc.lock", "params.yaml")
    )
    assert list(lock["stages"]) == list(declared["stages"])
    for name, stage in declared["stages"].items():
        locked = lock["stages"][name]
        held = {key.partition(".")[0] for file in locked.get("params", {}).values() for key in file}
        assert held == set(stage["params"])
        assert {out["path"] for out in locked["outs"]} >= {
            path
            for out in stage.get("outs", [])
            for path in (out if isinstance(out, dict) else [out])
        }
    assert lock["stages"]["data"]["params"]["params.yaml"] == {"data": params["data"]}


@pytest.mark.parametrize("scheme", ["http", "webdav", "ssh"])
def test_a_remote_that_does_not_answer_is_named(scheme: str, tmp_path: Path, monkeypatch):
    """Before DVC asks it, for minutes."""
    monkeypatch.setattr(dvc_store, "PATIENCE", 0.2)
    with silent_listener() as port:
        remote = f"{scheme}://me:secret@127.0.0.1:{port}/store"
        asked = Versions(tmp_path / "dvc", remote).require_answer
        with pytest.raises(StorageError, match=f"{scheme}://127.0.0.1:{port} does not answer") as e:
            asked()
    assert "secret" not in str(e.value)
    with pytest.raises(StorageError, match="does not answer"):  # nobody listens there now
        asked()


STORES = {
    "s3": ("AWS_ENDPOINT_URL", "{}", "endpointurl"),
    "gs": ("STORAGE_EMULATOR_HOST", "{}", "endpointurl"),
    "azure": ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;BlobEndpoint={}", ""),
}


@pytest.mark.parametrize("scheme", STORES)
def test_an_object_store_that_does_not_answer_is_named_with_its_address(
    scheme: str, tmp_path: Path, monkeypatch
):
    """By the environment, and by settings of DVC that override it."""
    monkeypatch.setattr(dvc_store, "PATIENCE", 0.2)
    variable, form, setting = STORES[scheme]
    asked = Versions(tmp_path / "dvc", f"{scheme}://bucket/key").require_answer
    with silent_listener() as port, webhook_receiver() as answering:
        silent, sound = (f"http://127.0.0.1:{each}" for each in (port, answering.port))
        monkeypatch.setenv(variable, form.format(sound))
        asked()
        settings = {"connection_string": form.format(silent)}
        if setting:
            settings = {setting: silent}
        lines = [f"{name} = {value}" for name, value in settings.items()]
        config = tmp_path / "dvc" / ".dvc" / "config.local"
        config.parent.mkdir(parents=True)
        config.write_text("\n".join(["[core]", "remote = a", "['remote \"a\"']", *lines]))
        with pytest.raises(StorageError, match=f"{scheme}://bucket at {silent} does not answer"):
            asked()


def test_a_remote_that_answers_is_asked_no_further(tmp_path: Path, monkeypatch):
    asked, head = [], httpx.head
    monkeypatch.setattr(httpx, "head", lambda url, **how: asked.append(url) or head(url, **how))
    with webhook_receiver() as answering:  # which knows no HEAD
        address = f"http://127.0.0.1:{answering.port}"
        for remote in (f"{address}/store", str(tmp_path), "gdrive://folder"):
            Versions(tmp_path / "dvc", remote).require_answer()
    assert asked == [address]
    assert answering.received == []
