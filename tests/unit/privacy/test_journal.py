"""The journal replays what it holds, draws what it does not, and refuses what is not its own."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cloister.errors import JournalMismatch, StorageError
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.journal_format import JOURNAL_NAME

OWNER = {"data": "d1", "code": "c1", "spec": "s1"}


def request(n: int) -> dict[str, object]:
    return {"query": "counts", "attributes": ["age", "odd-näme '\""], "position": n, "scale": 0.1}


def refuse() -> np.ndarray:
    raise AssertionError("an answer that is on disk was drawn again")


def write_three(folder: Path) -> list[np.ndarray]:
    draws = [np.arange(6).reshape(2, 3), np.array(2.5), np.array([], dtype=np.float32)]
    with Journal.open(folder, OWNER) as journal:
        return [journal.answer(request(n), lambda n=n: draws[n]) for n in range(3)]


def replay(folder: Path, count: int) -> list[np.ndarray]:
    with Journal.open(folder, OWNER) as journal:
        assert journal.recorded == count
        return [journal.answer(request(n), refuse) for n in range(count)]


def test_a_second_run_gets_the_same_answers_and_draws_nothing(tmp_path: Path) -> None:
    first, second = write_three(tmp_path), replay(tmp_path, 3)
    for one, again in zip(first, second, strict=True):
        assert one.dtype == again.dtype and one.shape == again.shape
        np.testing.assert_array_equal(one, again)
        assert one.flags.writeable and again.flags.writeable


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", ">i4", "float16", "float64"])
def test_every_dtype_comes_back_bit_by_bit(tmp_path: Path, dtype: str) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype).transpose(2, 0, 1)
    with Journal.open(tmp_path, OWNER) as journal:
        journal.answer(request(0), lambda: values)
    with Journal.open(tmp_path, OWNER) as journal:
        back = journal.answer(request(0), refuse)
    assert back.dtype == values.dtype and back.shape == values.shape
    assert back.tobytes() == values.tobytes()


def test_what_is_returned_is_apart_from_what_was_drawn(tmp_path: Path) -> None:
    drawn = np.zeros(3)
    with Journal.open(tmp_path, OWNER) as journal:
        journal.answer(request(0), lambda: drawn)[:] = 7
    assert not drawn.any()
    assert not replay(tmp_path, 1)[0].any()


def test_a_resumed_run_draws_after_the_last_answer_and_refuses_another_request(tmp_path) -> None:
    write_three(tmp_path)
    with Journal.open(tmp_path, OWNER) as journal:
        journal.answer(request(0), refuse)
        with pytest.raises(JournalMismatch, match="position 1"):
            journal.answer(request(2), refuse)
    with Journal.open(tmp_path, OWNER) as journal:
        for n in range(3):
            journal.answer(request(n), refuse)
        assert journal.answer(request(3), lambda: np.array([9])) == 9
    assert replay(tmp_path, 4)[3] == 9


def test_a_journal_of_other_data_code_or_spec_is_refused(tmp_path: Path) -> None:
    write_three(tmp_path)
    for name, value in (("data", "d2"), ("code", "c2"), ("spec", "s2"), ("extra", "x")):
        with pytest.raises(JournalMismatch, match=name):
            Journal.open(tmp_path, OWNER | {name: value})
    assert len(replay(tmp_path, 3)) == 3


def test_the_versions_that_drew_answers_are_counted(tmp_path: Path) -> None:
    write_three(tmp_path)
    with Journal.open(tmp_path, OWNER) as journal:
        assert journal.drawn_by == {"c1": 3}
        journal.begin_run("c2")
        for n in range(3):
            journal.answer(request(n), refuse)
        journal.answer(request(3), lambda: np.array([9]))
    with Journal.open(tmp_path, OWNER) as journal:
        journal.begin_run("c3")
        assert journal.drawn_by == {"c1": 3, "c2": 1}
        with pytest.raises(JournalMismatch, match="by version c1 and c2"):
            journal.answer(request(2), refuse)


def test_a_finished_journal_replays_but_takes_no_more(tmp_path: Path) -> None:
    write_three(tmp_path)
    with Journal.open(tmp_path, OWNER) as journal:
        with pytest.raises(JournalMismatch, match="more answers"):
            journal.seal()
        for n in range(3):
            journal.answer(request(n), refuse)
        journal.seal()
        journal.seal()
    with Journal.open(tmp_path, OWNER) as journal:
        assert journal.sealed and journal.recorded == 3
        for n in range(3):
            journal.answer(request(n), refuse)
        with pytest.raises(JournalMismatch, match="finished"):
            journal.answer(request(3), refuse)


def test_identity_stays_and_differs_between_journals_that_only_the_owner_may_read(tmp_path) -> None:
    folder = tmp_path / "new" / "folder"
    with Journal.open(folder, OWNER) as a, Journal.open(tmp_path / "b", OWNER) as b:
        identity, digest = a.id, a.digest
        assert a.id != b.id
    with Journal.open(folder, OWNER) as again:
        assert (again.id, again.digest) == (identity, digest)
    assert stat.S_IMODE(os.stat(folder / JOURNAL_NAME).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_two_processes_cannot_use_one_journal(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom cloister.errors import StorageError\n"
        "from cloister.privacy.door.journal import Journal\n"
        "try:\n    Journal.open(sys.argv[1], {})\nexcept StorageError as error:\n    print(error)\n"
    )
    with Journal.open(tmp_path, {}):
        run = subprocess.run(
            [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True
        )
        assert "in use by another process" in run.stdout
        with pytest.raises(StorageError, match="in use"):
            Journal.open(tmp_path, {})
    Journal.open(tmp_path, {}).close()


def test_a_failed_draw_writes_nothing(tmp_path: Path) -> None:
    with Journal.open(tmp_path, OWNER) as journal:
        with pytest.raises(ZeroDivisionError):
            journal.answer(request(0), lambda: np.array([1 // 0]))
        with pytest.raises(TypeError):
            journal.answer(request(0), lambda: np.array(["text"]))
        assert journal.recorded == 0
        journal.answer(request(0), lambda: np.ones(1))
    assert len(replay(tmp_path, 1)) == 1


def test_a_path_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("something else")
    for name in ("file", "link"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / JOURNAL_NAME
        if name == "link":
            path.symlink_to(tmp_path / "target")
        else:
            path.write_text("something else")
        with pytest.raises((JournalMismatch, StorageError)):
            Journal.open(tmp_path / name, {})
        assert path.read_text() == "something else"
    with pytest.raises(StorageError, match="target"):
        Journal.open(tmp_path / "target" / "below", {})


def test_a_tail_cut_anywhere_loses_only_the_answer_that_was_never_seen(tmp_path: Path) -> None:
    write_three(tmp_path)
    path = tmp_path / JOURNAL_NAME
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with Journal.open(tmp_path, OWNER) as journal:
            assert journal.recorded <= 2
            for n in range(journal.recorded):
                journal.answer(request(n), refuse)
            journal.answer(request(journal.recorded), lambda: np.ones(2))
    assert len(replay(tmp_path, 3)) == 3


def test_blocks_that_were_never_written_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_NAME
    with Journal.open(tmp_path, OWNER) as journal:
        journal.answer(request(0), lambda: np.ones(3))
        before = path.stat().st_size
        journal.answer(request(1), lambda: np.ones(100))
    whole = path.read_bytes()
    for zeros in (1, 17, 500):
        path.write_bytes(whole + bytes(zeros))
        assert len(replay(tmp_path, 2)) == 2
    for length in (before, *range(before + 17, len(whole) - 32, 13)):
        path.write_bytes(whole[:length].ljust(len(whole), b"\0"))
        assert len(replay(tmp_path, 1)) == 1


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    write_three(tmp_path)
    path = tmp_path / JOURNAL_NAME
    whole = path.read_bytes()
    for offset in range(len(whole)):
        path.write_bytes(
            whole[:offset] + bytes([whole[offset] ^ (1 << offset % 8)]) + whole[offset + 1 :]
        )
        with pytest.raises(JournalMismatch):
            Journal.open(tmp_path, OWNER)
    path.write_bytes(whole)
    assert len(replay(tmp_path, 3)) == 3


def test_it_holds_digests_of_requests_and_no_request(tmp_path: Path) -> None:
    with Journal.open(tmp_path, OWNER) as journal:
        journal.answer({"query": "canary-request"}, lambda: np.ones(1))
    content = (tmp_path / JOURNAL_NAME).read_bytes()
    assert b"canary-request" not in content
    assert json.dumps(OWNER["data"]).encode() in content
