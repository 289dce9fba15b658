"""A file appears whole, for its owner alone, or not at all; what killed processes left goes."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloister.errors import StorageError
from cloister.files import is_running, write_whole
from cloister.schema.sources.stored_files import files_of
from cloister.tasks.home.files import exclusive


def ended() -> int:
    """The id of a process that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def parts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_file_takes_the_place_of_another_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "held.json"
    path.write_text("old")
    before = os.umask(0)
    try:
        write_whole(path, lambda part: part.write_text("new"))
    finally:
        os.umask(before)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_whole(path, lambda part: part.write_text("second"), replace=False)
    assert path.read_text() == "new"
    write_whole(tmp_path / f"{'n' * 250}.json", lambda part: part.write_text("whole"))
    assert parts(tmp_path) == []


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "held.json"
    path.write_text("old")

    def half(part: Path) -> None:
        part.write_text("ne")
        raise OSError(28, "no space")

    with pytest.raises(OSError, match="no space"):
        write_whole(path, half)
    assert path.read_text() == "old"
    assert parts(tmp_path) == []


def test_the_parts_of_a_killed_process_are_removed_with_their_journals(tmp_path):
    path = tmp_path / "store.db"
    pid = os.fork()
    if pid == 0:

        def killed(part: Path) -> None:
            part.with_name(f"{part.name}-journal").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

        write_whole(path, killed)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert len(parts(tmp_path)) == 2
    write_whole(tmp_path / "other.db", lambda part: part.write_text("other"))
    assert len(parts(tmp_path)) == 2
    write_whole(path, lambda part: part.write_text("whole"))
    assert parts(tmp_path) == []


def test_the_part_of_a_process_that_runs_stays(tmp_path):
    path, names = tmp_path / "held.json", []
    write_whole(path, lambda part: names.append(part.name))
    fields = names[0].split(".")
    parents_part = tmp_path / ".".join(["", str(os.getppid()), *fields[2:]])
    dead = tmp_path / ".".join(["", str(ended()), *fields[2:]])
    for part in (parents_part, dead):
        part.write_text("half")
    write_whole(path, lambda part: part.write_text("whole"))
    assert parts(tmp_path) == [parents_part]


def test_threads_write_the_same_file_beside_each_other(tmp_path):
    path, both = tmp_path / "held.json", threading.Barrier(2)

    def slowly(part: Path, text: str) -> None:
        part.write_text(text * 1_000)
        both.wait(10)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: write_whole(path, lambda part: slowly(part, text)), "ab"))
    assert path.read_text() in {"a" * 1_000, "b" * 1_000}
    assert parts(tmp_path) == []


def test_whether_a_process_runs():
    assert [is_running(pid) for pid in (os.getpid(), 1, ended(), 10**30)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_lock_that_cannot_be_made_is_named_with_the_reason(tmp_path):
    with (
        pytest.raises(StorageError, match=r"gone/lock cannot be opened \(No such file"),
        exclusive(tmp_path / "gone" / "lock"),
    ):
        pass


def test_devices_and_pipes_are_no_sources_since_they_may_never_end(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path("/dev/zero")):
        with pytest.raises(StorageError, match="is a regular file, which it is not"):
            files_of(path)
    (tmp_path / "rows.csv").write_text("a\n1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    assert files_of(tmp_path / "link.csv") == (str(tmp_path / "link.csv"),)
