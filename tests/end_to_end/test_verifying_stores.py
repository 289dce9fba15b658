"""verify finds what stores lost and what was added, and works where nothing can be written."""

import json
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cloister.flows.cli.app import run
from cloister.tasks.home.files import sealed_findings
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger, release_of
from cloister.tasks.ledger.notifications import Subscriber, subscribe
from cloister.tasks.release.verify import verify_records


def late_imports():
    global Registration, ReleaseSchedule, SqlAlchemyStore
    from cloister.tasks.stores.mlflow_database import SqlAlchemyStore
    from cloister.tasks.stores.prefect_registration import Registration, ReleaseSchedule


NOBODY = 65534


def findings(home: Home, what: str | None = None) -> list[str]:
    return verify_records(home, what)[1]


def objects(home: Home) -> list[Path]:
    return sorted(path for path in Path(home.remote).rglob("*") if path.is_file())


@pytest.fixture
def store(home: Home) -> Path:
    return home.folder / "mlflow" / "mlflow.db"


def test_an_object_that_is_missing_is_named_with_its_pointer(approved_home, approved):
    pointers = {path.name for path in (approved_home.versions / "releases" / approved.id).iterdir()}
    for path in objects(approved_home):
        content = path.read_bytes()
        path.unlink()
        (finding,) = findings(approved_home)
        assert [finding] == findings(approved_home, approved.id)
        assert finding.startswith(f"{path}: is missing: ")
        assert f"cloister review approve {approved.id} sends it again" in finding
        pointers -= {name for name in pointers if f"/{name} points" in finding}
        path.write_bytes(content)
    assert not pointers
    assert findings(approved_home) == []


def test_what_a_remote_altered_or_lost_is_named_once(approved_home, approved):
    path, count = objects(approved_home)[0], len(objects(approved_home))
    path.write_bytes(path.read_bytes() + b"?")
    expected = [f"{path}: was altered: its name is not its digest; restore it from a backup"]
    assert findings(approved_home) == findings(approved_home, approved.id) == expected
    for gone in ("files", ""):
        shutil.rmtree(Path(approved_home.remote) / gone)
        (finding,) = findings(approved_home)
        assert finding == (
            f"{approved_home.remote}: holds none of the {count} files of release {approved.id}; "
            f"cloister review approve {approved.id} sends it again, or correct CLOISTER_REMOTE"
        )


@pytest.mark.slow
def test_a_remote_that_was_moved_is_named_and_set_right(approved_home, approved, tmp_path):
    config = approved_home.versions / ".dvc" / "config"
    text, elsewhere = config.read_text(encoding="utf-8"), tmp_path / "elsewhere"
    shutil.copytree(approved_home.remote, elsewhere)
    for moved in (
        text.replace("../../dvc-remote", str(elsewhere)),
        text.replace("remote = storage", "remote = other")
        + f"['remote \"other\"']\n    url = {elsewhere}\n",
        "",
    ):
        assert moved != text
        config.write_text(moved, encoding="utf-8")
        (finding,) = findings(approved_home)
        assert finding.startswith(f"{config}: does not name {approved_home.remote} as the remote")
    config.with_name("config.local").write_text(
        f"['remote \"storage\"']\n    url = {elsewhere}\n", encoding="utf-8"
    )
    config.write_text(text, encoding="utf-8")
    assert any(str(config) in finding for finding in findings(approved_home))
    assert run(["fetch", approved.id]) == 2
    config.with_name("config.local").unlink()
    config.write_text("", encoding="utf-8")
    held = Path(approved_home.remote).rename(tmp_path / "held")
    path = approved_home.release(approved.id) / "public" / "synthetic.parquet"
    path.unlink()
    assert run(["fetch", approved.id]) == 2  # that of the home which was copied has it
    assert not path.exists()
    held.rename(approved_home.remote)
    assert run(["fetch", approved.id]) == 0
    assert config.read_text(encoding="utf-8") == text
    assert findings(approved_home) == []


def contents(home: Home) -> dict[Path, bytes]:
    """All files of a home, but those that SQLite makes to read a database, and locks."""
    files = (path for path in home.folder.rglob("*") if path.is_file())
    beside = ("-shm", "-wal", ".lock")
    return {path: path.read_bytes() for path in files if not path.name.endswith(beside)}


def emptied(store: Path) -> None:
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("PRAGMA foreign_keys = OFF")
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if table != "alembic_version":
                database.execute(f"DELETE FROM {table}")


def replaced(store: Path) -> None:
    store.unlink()
    SqlAlchemyStore(f"sqlite:///{store}", store.parent.as_uri()).engine.dispose()


def forgotten(store: Path) -> None:
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("DROP TABLE model_versions")
        database.execute("DROP TABLE runs")
        database.execute("DROP TABLE logged_models")


ONES = [emptied, *(pytest.param(each, marks=pytest.mark.slow) for each in (replaced, forgotten))]


@pytest.mark.parametrize("change", [*ONES, Path.unlink])
def test_a_tracking_store_without_its_rows_is_named_and_nothing_is_approved(
    home, released, store, change: Callable[[Path], None], capsys
):
    logged = json.loads((home.release(released.id) / "runs.json").read_text(encoding="utf-8"))
    change(store)
    before = contents(home)
    (finding,) = findings(home)
    assert finding.startswith(f"{store}: {'lacks' if store.exists() else 'is missing, with'} ")
    for name in (*logged["runs"], *logged["models"], f"registered model of release {released.id}"):
        assert name in finding
    assert "restore it from a backup" in finding
    assert run(["review", "approve", released.id, "--by", "A. Officer", "--reason", "fine"]) == 1
    assert finding in capsys.readouterr().err
    assert release_of(home, released.id).state.value == "candidate"
    assert before == contents(home)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DELETE FROM model_versions", ["the registered model"]),
        ("UPDATE runs SET lifecycle_stage = 'deleted' WHERE name LIKE '% r-%'", ["run "]),
        ("DELETE FROM logged_models", ["model m-"]),
    ],
)
def test_a_row_that_is_gone_is_named_alone(home, released, store, statement, named):
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute(statement)
    (finding,) = findings(home)
    lacking = finding.removeprefix(f"{store}: lacks ").partition(" of release ")[0].split(", ")
    assert len(lacking) == len(named)
    assert all(each.startswith(name) for each, name in zip(lacking, named, strict=True))


def test_a_store_that_lost_its_rows_after_the_approval_stops_the_publication(home, released, store):
    words = (released.id, "--by", "A. Officer", "--reason", "fine")
    assert run(["review", "approve", *words]) == 0
    whole = store.read_bytes()
    emptied(store)
    assert run(["review", "publish", *words]) == 1
    assert release_of(home, released.id).state.value == "approved"
    store.write_bytes(whole)
    assert run(["review", "publish", *words]) == 0
    assert findings(home) == []


ADDED = (
    "releases/note.txt",
    "releases/r-0000000000/manifest.json",
    "releases/RELEASE/note.txt",
    "releases/RELEASE/model/arrays.npy",
    "releases/RELEASE/public/salaries.csv",
    "releases/RELEASE/public/more/salaries.csv",
    "releases/RELEASE/public/.manifest.json.part",
    "releases/RELEASE/public/spent.dsse.json",
    "releases/RELEASE/public/approved.dsse.json",
    "journals/RELEASE/journal.bak",
    "journals/r-0000000000/journal.bin",
    "dvc/releases/RELEASE/other.dvc",
    "dvc/releases/r-0000000000/synthetic.dvc",
)


def test_an_added_file_is_named(home, released, capsys):
    for name in ADDED:
        path = home.folder / name.replace("RELEASE", released.id)
        made = not path.parent.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        said = findings(home)
        assert any(str(part) in each for each in said for part in (path, path.parent)), path
        if path.parent.name == "public":
            capsys.readouterr()
            assert run(["verify", str(path.parent)]) == 1
            said = capsys.readouterr()
            assert path.name in said.out + said.err
        path.unlink()
        if made:
            path.parent.rmdir()
    assert findings(home) == []


def test_a_link_in_place_of_a_file_of_the_home_is_named(home, tmp_path):
    for name in ("key", "end", "ledger.db", "signing/house.pem", "signing/house.pub"):
        path = home.folder / name
        held = path.rename(tmp_path / path.name)
        path.symlink_to(held)
        (finding,) = findings(home)
        assert finding.startswith(f"{path}: is a link") and "put a copy of the file" in finding
        path.unlink()
        held.rename(path)


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_place_of_what_vouches_for_a_release_is_named(
    home, released, tmp_path, link, capsys
):
    """The content is the same today, and whoever may write what it leads to changes it."""
    folder = home.release(released.id)
    assert run(["review", "approve", released.id, "--reason", "sound"]) == 0
    statements = sorted((folder / "public").glob("*.dsse.json"))
    assert len(statements) == 2
    for path in (folder / "kept.json", folder / "public" / "manifest.json", *statements):
        held = path.rename(tmp_path / path.name)
        link(path, held)
        assert any(each.startswith(f"{path}: is a link") for each in findings(home))
        assert run(["review", "publish", released.id, "--reason", "sound"]) == 1
        if path.parent.name == "public":
            assert run(["verify", str(path.parent)]) == 1
            assert f"{path.name}: is a link" in "".join(capsys.readouterr().out.split("\n"))
        path.unlink()
        held.rename(path)
    if link is Path.symlink_to:
        held = (folder / "public").rename(tmp_path / "public")
        link(folder / "public", held)
        (finding,) = findings(home)
        assert finding.startswith(f"{folder / 'public'}: is a link")


def test_a_change_of_a_registration_or_of_a_subscriber_is_named(home):
    subscribe(home, Subscriber("mailto:a@example.org", ("candidate",), "", "smtp://127.0.0.1:25"))
    schedule, due = ReleaseSchedule("0 3 1 * *", "UTC"), "2026-11-01T03:00:00+00:00"
    Registration("clubs", "id", {"request": {"spec": "s"}}, schedule, "/", "", due).write(home)
    paths = [path for name in ("notify", "recurring") for path in (home.folder / name).glob("*.j*")]
    assert findings(home) == [] and len(paths) == 2
    texts = [path.read_bytes() for path in paths]
    for path, whole in zip(paths, texts, strict=True):
        for position in range(len(whole)):
            path.write_bytes(
                bytes([*whole[:position], whole[position] ^ 4, *whole[position + 1 :]])
            )
            assert any(str(path) in finding for finding in sealed_findings(home)), position
        unsealed = {name: each for name, each in json.loads(whole).items() if name != "seal"}
        path.write_text(json.dumps(unsealed))
        (finding,) = findings(home)
        assert finding.startswith(f"{path}: has no seal") and "cloister " in finding
        path.write_bytes(whole)
    other = paths[1].rename(paths[1].with_stem("another"))
    assert [finding.startswith(f"{other} was altered") for finding in findings(home)] == [True]


@pytest.fixture
def copied(home: Home) -> Iterator[Callable[[], Home]]:
    """Makes a copy of the home that others may read and nobody write, as an auditor has it."""
    made = []

    def copy() -> Home:
        folder = Path(tempfile.mkdtemp(prefix="copy-"))
        made.append(folder)
        folder.chmod(0o755)
        shutil.copytree(home.folder, folder / "home")
        for path in [folder / "home", *(folder / "home").rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        return Home.current({"CLOISTER_HOME": str(folder / "home")})

    yield copy
    for folder in made:
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(folder)


def traces(home: Home) -> dict[str, tuple[int, int, int]]:
    """All files of a home, with what changes when they do."""
    return {
        str(path): (path.stat().st_mode, path.stat().st_size, path.stat().st_mtime_ns)
        for path in home.folder.rglob("*")
    }


def found_as(user: int, home: Home, *what: str) -> tuple[int, str]:
    """What the command says to a user, in a process of theirs: exit code and text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        sys.stdout = sys.stderr = os.fdopen(write, "w")
        os.environ["CLOISTER_HOME"] = str(home.folder)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        code = run(["verify", *what, "--json"])
        sys.stdout.flush()
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


@pytest.mark.parametrize("user", [NOBODY, 0])
def test_a_copy_that_nobody_may_write_is_verified_and_left_as_it_is(
    home, released, copied, user, capfd
):
    sound = copied()
    before = traces(sound)
    for what in ((), (released.id,), (str(sound.release(released.id) / "public"), "--key")):
        key = [str(sound.folder / "signing" / "house.pub")] if "--key" in what else []
        code, text = found_as(user, sound, *what, *key)
        assert (code, json.loads(text)["findings"]) == (4 if key else 0, []), text
    assert traces(sound) == before


@pytest.mark.slow
def test_a_copy_that_nobody_may_write_shows_the_same_findings(home, released, copied, store):
    emptied(store)
    (home.versions / "releases" / released.id / "synthetic.dvc").unlink()
    (home.release(released.id) / "public" / "note.txt").write_text("mine")
    home.end.unlink()
    there = findings(home)
    assert len(there) == 5
    copy = copied()
    code, text = found_as(NOBODY, copy)
    here = json.loads(text.replace(str(copy.folder), str(home.folder)))["findings"]
    assert (code, here) == (1, there)


def test_a_copy_of_a_home_in_use_is_read_with_what_its_ledger_wrote_last(home, released, copied):
    ledger = existing_ledger(home)
    with ledger.store.reading():  # SQLite moves nothing from its log while somebody reads
        words = (released.id, "--by", "A. Officer", "--reason", "no")
        assert run(["review", "reject", *words]) == 0
        copy = copied()
    code, text = found_as(NOBODY, copy)
    assert (code, json.loads(text)["findings"]) == (0, []), text
    assert release_of(copy, released.id).state.value == "rejected"
