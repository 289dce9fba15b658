"""Full disks, failed writes and random kills: a journal loses no answer that was seen."""

import errno
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from small_disks import small_disk

from cloister.errors import StorageError
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.journal_format import JOURNAL_NAME

Start = Callable[[Callable[[], int]], int]


def answer(journal: Journal, size: int = 100) -> np.ndarray:
    request = {"position": journal.position}
    return journal.answer(request, lambda: np.frombuffer(os.urandom(8 * size), dtype=np.int64))


def replayed(folder: Path, seen: list[np.ndarray]) -> None:
    """The journal gives the answers that were seen, and accepts further ones."""
    with Journal.open(folder, {}) as journal:
        assert journal.recorded in (len(seen), len(seen) + 1)
        for expected in seen:
            np.testing.assert_array_equal(answer(journal, len(expected)), expected)
        answer(journal)


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("written", [0, 1, 50])
def test_a_write_that_fails_is_not_an_answer(tmp_path, monkeypatch, call, code, written) -> None:
    write = os.pwrite

    def fail(descriptor: int, *rest: object) -> int:
        if rest and written and fail.calls == 0:  # type: ignore[attr-defined]
            fail.calls = 1  # type: ignore[attr-defined]
            part = bytes(rest[0])[:written]  # type: ignore[call-overload]
            return write(descriptor, part, rest[1])  # type: ignore[call-overload]
        raise OSError(code, os.strerror(code))

    fail.calls = 0  # type: ignore[attr-defined]
    journal = Journal.open(tmp_path, {})
    seen = [answer(journal), answer(journal)]
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(StorageError, match=JOURNAL_NAME):
            answer(journal)
    with pytest.raises(StorageError, match="closed"):
        answer(journal)
    replayed(tmp_path, seen)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", kilobytes=256) as folder:
        yield folder


def test_a_full_disk_says_so_and_loses_no_answer(disk: Path) -> None:
    journal, seen = Journal.open(disk, {}), []
    with pytest.raises(StorageError, match="No space left"):
        for _ in range(1000):
            seen.append(answer(journal, 1000))
    assert seen
    moved = disk.parent / "moved"
    moved.mkdir()
    (moved / JOURNAL_NAME).write_bytes((disk / JOURNAL_NAME).read_bytes())
    replayed(moved, seen)


def test_a_limit_on_file_size_says_so_and_loses_no_answer(tmp_path, child, ending) -> None:
    def limited() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        seen: list[np.ndarray] = []
        journal = Journal.open(tmp_path, {})
        try:
            while True:
                seen.append(answer(journal, 300))
        except StorageError:
            pass
        with Journal.open(tmp_path, {}) as again:
            same = [np.array_equal(answer(again, 300), expected) for expected in seen]
        return 0 if all(same) and len(same) >= 5 else 1

    assert ending(child(limited)) == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_kill_at_a_random_moment_loses_no_answer(tmp_path, child, ending, seed) -> None:
    seen_path = tmp_path / "seen"

    def busy() -> int:
        with Journal.open(tmp_path, {}) as journal, seen_path.open("ab", buffering=0) as seen:
            while True:
                seen.write(answer(journal, 5000).tobytes())

    pid = child(busy)
    while not seen_path.exists():
        time.sleep(0.001)
    time.sleep(random.Random(seed).uniform(0, 0.05))
    os.kill(pid, signal.SIGKILL)
    assert ending(pid) == -signal.SIGKILL
    content = seen_path.read_bytes()
    seen = np.frombuffer(content[: len(content) // 40_000 * 40_000], dtype=np.int64).reshape(
        -1, 5000
    )
    replayed(tmp_path, list(seen))
