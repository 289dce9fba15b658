"""docs/tutorial.md, "A year": twelve months on a real server, whose own scheduler makes each run.

Nothing here makes a run. One clock, which the test sets, is that of the server, of ``cloister
serve`` and of the commands of the page.
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from moved_clock import MovedClock
from real_server import ROOT, command, listed, real_server, running, wait

from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import releases

CHAPTER = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8").partition("## 7. A year")[2]
BLOCKS = {match[1]: match[2] for match in re.finditer(r"```sh\n# (.+)\n((?:.+\n)+?)```", CHAPTER)}
SPEC = re.findall(r"```yaml\n(.+?)```", CHAPTER, re.DOTALL)[0]
KINDS = re.findall(r"^\| (.+?) \| `(.+?)` \|$", CHAPTER, re.MULTILINE)
# Seconds in which a run must have ended, on a machine that is busy.
ENDED = 300
FINAL = ("COMPLETED", "CRASHED", "CANCELLED", "FAILED")
MARCH, JULY, DECEMBER = 3, 7, 12
DECISIONS = {5: "June: rejected", 9: "October: withdrawn"}


class Year:
    """The folder of the page, its clock, and what is served."""

    def __init__(self, folder: Path, clock: MovedClock, settings: dict[str, str]) -> None:
        self.folder, self.clock, self.settings = folder, clock, settings
        self.home = Home.current({"CLOISTER_HOME": settings["CLOISTER_HOME"]})
        self.log = folder / "serve.log"
        self._serving = ExitStack()

    def shell(self, block: str, code: int = 0, **names: str) -> str:
        """What a block of the page prints."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", BLOCKS[block]],
            env=self.settings | {"PATH": path, "COLUMNS": "200"} | names,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{block}: {done.stdout}{done.stderr}"
        return done.stdout

    def serve(self) -> None:
        """Start ``cloister serve``, as a service does."""
        served = running(["-c", command(["serve"])], self.settings, self.log)
        self._process = self._serving.enter_context(served)

    def kill(self) -> None:
        """End it as a loss of power does."""
        self._process.kill()
        self.end()

    def end(self) -> None:
        """End it as a service is ended."""
        self._serving.close()

    def until(self, done: Callable[[], object], failure: str) -> None:
        """Wait until something is so."""
        wait(done, ENDED, failure, self.folder)

    def run_of(self, due: datetime) -> dict | None:
        """The run that the server has for a time, once it has ended."""
        runs = [
            each
            for each in listed(self.settings, "flow_runs", {})
            if datetime.fromisoformat(each["expected_start_time"]) == due
        ]
        return next((each for each in runs if each["state"]["type"] in FINAL), None)

    def newest(self) -> str:
        """The release that was begun last."""
        return releases(self.home, "arrivals")[-1].id


@pytest.fixture
def year(tmp_path: Path) -> Iterator[Year]:
    """The folder in the middle of January 2024, with a server."""
    clock = MovedClock(tmp_path)
    clock.set(datetime(2024, 1, 15, 9, tzinfo=UTC))
    own = clock.settings | {"CLOISTER_HOME": str(tmp_path / ".cloister")}
    with real_server(tmp_path, own) as settings:
        made = Year(tmp_path, clock, settings)
        try:
            yield made
        finally:
            made.end()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_year_of_the_page_is_made_by_the_scheduler(year, monkeypatch, capsys):
    (year.folder / "arrivals.yaml").write_text(SPEC, encoding="utf-8")
    year.shell("January: the table")
    year.shell("January: the schedule")
    year.serve()
    runs = [month_passes(year, month) for month in range(1, 13)]
    year.end()
    assert all(each["auto_scheduled"] for each in runs)
    assert Counter(each["state"]["name"] for each in runs) == {
        "AwaitingReview": 10,
        "Crashed": 1,
        "Declined": 1,
    }
    assert "0 problems in the ledger" in year.shell("the end of the year")
    with monkeypatch.context() as patch:
        patch.setenv("CLOISTER_HOME", str(year.home.folder))
        said = {kind: said_of_a_byte(year, pattern, capsys) for kind, pattern in KINDS}
    assert {kind: words for kind, words in said.items() if words} == {}
    year.shell("the second of a month", RELEASE=year.newest())
    assert "0 problems in the ledger" in year.shell("the end of the year")
    held = releases(year.home, "arrivals")
    assert Counter(each.state for each in held) == {"published": 10, "rejected": 1, "withdrawn": 1}
    house = (year.home.folder / "signing" / "house.pub").read_bytes()
    (year.folder / "house.pub").write_bytes(house)
    for each in held:
        year.shell("a receiver", 0 if each.state == "published" else 4, RELEASE=each.id)


def month_passes(year: Year, month: int) -> dict:
    """Rows arrive, what the scheduler made is run, and people decide; the run."""
    first = datetime(2024 + month // 12, month % 12 + 1, 1, 9, tzinfo=UTC)
    year.clock.set(first)
    year.shell("the first of a month", MONTH=f"2024-{month:02}")
    if month == JULY:
        year.shell("August: declined")
    due = first.replace(day=2, hour=3)
    said = len(year.log.read_text())
    year.clock.set(due - timedelta(seconds=2))
    if month == MARCH:
        killed_and_resumed(year, said)
    year.until(lambda: year.run_of(due), f"the run of {due} has not ended")
    if month != DECEMBER:  # whose release waits, with its journal
        year.shell(DECISIONS.get(month, "the second of a month"), RELEASE=year.newest())
    run_of = year.run_of(due)
    assert run_of
    return run_of


def killed_and_resumed(year: Year, said: int) -> None:
    """``cloister serve`` is killed within a release, and started again by its service."""
    deadline = time.monotonic() + ENDED
    while " fit started" not in year.log.read_text()[said:] and time.monotonic() < deadline:
        time.sleep(0.05)
    year.kill()
    unfinished = year.newest()
    assert unfinished in year.shell("April: killed")
    assert year.newest() == unfinished
    year.serve()


def said_of_a_byte(year: Year, pattern: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What ``cloister verify`` says of a file with another byte; nothing if it names it."""
    path = min(year.home.folder.glob(pattern.replace("RELEASE", year.newest())))
    before = path.read_bytes()
    middle = before.find(b"monthly series") if path.name == "ledger.db" else len(before) // 2
    path.write_bytes(before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :])
    capsys.readouterr()
    code = run(["verify"])
    said = "".join("".join(capsys.readouterr()).split())
    path.write_bytes(before)
    name = "ledger,entry" if path.name == "ledger.db" else path.name
    return "" if code == 1 and name in said else f"{code}: {path}: {said}"
