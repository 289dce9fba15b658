"""The nightly suite goes on where it was, and says what failed and what was counted."""

from pathlib import Path

import nightly
import psutil
from nightly import Part, Record, ended, result, run, under_pytest
from real_server import wait

TESTS = """
def test_ended(): raise AssertionError("run again")
def test_passes(record_property): record_property("kills", "release on sqlite")
def test_fails(): raise AssertionError
"""


def test_a_part_goes_on_after_the_tests_that_ended(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    record, second_record = Record(tmp_path / "part.jsonl"), Record(tmp_path / "other.jsonl")
    record.add("test", "all: test_it.py::test_ended", outcome="passed", figures=[])
    command = under_pytest("--rootdir", str(tmp_path), str(tmp_path))
    assert not record.ended
    run(Part("part", 1, {"all": command}), record)
    assert record.ended
    run(Part("other", 0, {"all": command, "never": command}), second_record)
    assert not second_record.ended
    page = result("", "abc", {"part": record, "other": second_record})
    assert "`abc`: ended after 0 minutes; of 3 tests 2 passed, 1 failed, 0 skipped." in page
    assert "`abc`: stopped after 0 minutes; of 0 tests 0 passed" in page
    assert "Failed: `all: test_it.py::test_fails`" in page
    assert "1 kills: 1 release on sqlite." in page


def test_the_result_of_a_part_stays_until_it_runs_again(tmp_path: Path) -> None:
    first, second = Record(tmp_path / "first.jsonl"), Record(tmp_path / "second.jsonl")
    first.add("test", "all: test_it.py::test_a", outcome="passed", figures=[])
    before = result("", "abc", {"first": first, "second": second})
    assert "## second\n\nNot run." in before
    first.path.unlink()
    second.add("test", "all: test_it.py::test_b", outcome="failed", figures=[])
    page = result(before, "def", {"first": first, "second": second})
    assert "`abc`: stopped after 0 minutes; of 0 tests 1 passed" in page
    assert "`def`" in page and "Failed: `all: test_it.py::test_b`" in page


def test_what_cannot_be_installed_ends_its_part(tmp_path: Path) -> None:
    record = Record(tmp_path / "part.jsonl")
    run(Part("part", 1, {"install": ["false"], "demo": ["true"]}), record)
    assert (record.ended, record.failures) == (True, ["install"])


def test_a_stop_ends_what_a_command_started(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(nightly, "GRACE", 0.5)  # the shell may ignore an interrupt
    command = ["sh", "-c", f"sleep 300 & echo $! > {tmp_path}/pid; wait"]
    assert ended(command, "all", 1.0, Record(tmp_path / "part.jsonl")) is None
    left = int((tmp_path / "pid").read_text())
    wait(lambda: _is_dead(left), 20, "the command's child still runs", tmp_path)


def _is_dead(pid: int) -> bool:
    """Whether a process is gone, or only waits to be read by its parent, if a container has one."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
