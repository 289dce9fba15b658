"""The nightly suite goes on where it was, and says what failed and what was counted."""

from pathlib import Path

from nightly import Part, Record, result, run, under_pytest

TESTS = """
def test_ended(): raise AssertionError("run again")
def test_passes(record_property): record_property("kills", "release on sqlite")
def test_fails(): raise AssertionError
"""


def test_a_part_goes_on_after_the_tests_that_ended(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    record, other = Record(tmp_path / "part.jsonl"), Record(tmp_path / "other.jsonl")
    record.add("test", "all: test_it.py::test_ended", outcome="passed", figures=[])
    command = under_pytest("--rootdir", str(tmp_path), str(tmp_path))
    assert not record.ended
    run(Part("part", 1, {"all": command}), record)
    assert record.ended
    run(Part("other", 0, {"all": command, "never": command}), other)
    assert not other.ended
    page = result("abc", {"part": record, "other": other})
    assert "| part | ended | 3 | 2 | 1 | 0 | 0 |" in page
    assert "| other | stopped at its cap | 0 | 0 | 0 | 0 | 0 |" in page
    assert "Failed: `all: test_it.py::test_fails`" in page
    assert "1 kills: 1 release on sqlite." in page


def test_what_cannot_be_installed_ends_its_part(tmp_path: Path) -> None:
    record = Record(tmp_path / "part.jsonl")
    run(Part("part", 1, {"install": ["false"], "demo": ["true"]}), record)
    assert (record.ended, record.failures) == (True, ["install"])
