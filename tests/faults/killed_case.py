"""A command in a home of its own, which is run and killed at a drawn moment."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger

METHODS = ("independent", "dpview", "copula", "mixture", "kamino")
STEPS = {
    "release": "plan reserve open fit sample evaluate certify record",
    "measure": "plan reserve open measure write finish",
    "sample": "",
}
SIGNALS = {
    "kill": signal.SIGKILL,
    "kill group": signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "interrupt": signal.SIGINT,
}

LONGEST = 240.0  # seconds after which a command hangs
GRACE = 60.0  # seconds that what a killed command had started may take to end


@dataclass(frozen=True)
class Kill:
    """How a run is killed: so many seconds after the start, or after a line on standard error."""

    how: str
    seconds: float
    line: str | None

    @classmethod
    def drawn(cls, rng: random.Random, command: str, duration: float) -> "Kill":
        how = rng.choices(list(SIGNALS), (6, 2, 1, 1))[0]
        steps = STEPS[command].split()
        if not steps or rng.random() < 0.5:
            return cls(how, rng.uniform(0, 1.1 * duration), None)
        line = f" {rng.choice(steps)} {rng.choice(('started', 'finished'))}\n"
        return cls(how, rng.random() ** 3 * duration / 5, line)


@dataclass(frozen=True)
class Run:
    """What became of one run of the command.

    ``hit`` is the last step it spoke of when it was killed.
    """

    code: int
    out: str
    err: str
    hit: str | None


@dataclass
class Case:
    """A command in a home and a folder of its own; ``sessions`` are those that its runs led."""

    seed: int
    folder: Path
    ledger: str | None
    released: str
    runs: list[Run] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    answers: bytes = b""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.command = self.rng.choices(list(STEPS), (16, 2, 2))[0]
        self.method = self.rng.choices(METHODS, (6, 4, 4, 4, 2))[0]
        self.whole = self.command == "release" and self.rng.random() < 0.05
        self.kills = self.rng.choice((1, 1, 1, 2, 3))
        self.work.mkdir(parents=True)

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def out(self) -> Path:
        return (
            self.work
            / {"release": "out", "measure": "new.yaml", "sample": "rows.parquet"}[self.command]
        )

    @property
    def environment(self) -> dict[str, str]:
        settings = {"CLOISTER_HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp")}
        return settings | ({"CLOISTER_LEDGER": self.ledger} if self.ledger else {})

    @property
    def home(self) -> Home:
        return Home.current(self.environment)

    @property
    def words(self) -> list[str]:
        spec, out = str(self.folder / "kills.yaml"), ["--out", str(self.out)]
        if self.command == "measure":
            return ["spec", "measure", spec, "--epsilon", "1", "--delta", "1e-6", *out]
        if self.command == "sample":
            return ["sample", self.released, "--rows", "200000", *out]
        wanted = out if self.has_out else []
        return ["release", spec, "--method", self.method, "--csv", *wanted]

    @property
    def has_out(self) -> bool:
        return self.seed % 3 != 0

    @property
    def described(self) -> str:
        what = f"release by {self.method}" if self.command == "release" else self.command
        whole = " as a whole process" if self.whole else ""
        return f"{what}{whole} on {'postgresql' if self.ledger else 'sqlite'}"

    @property
    def journal(self) -> bytes:
        """The answers that the release of this case holds."""
        held = existing_ledger(self.home)
        mine = held.releases("kills") if held else []
        path = self.home.journal(mine[0].id) / "journal.bin" if mine else Path("/none")
        return path.read_bytes() if path.exists() else b""


class Forked:
    """Runs of a case in forks of the preloaded process."""

    def __init__(self, preloaded, case: Case) -> None:
        self.preloaded, self.case = preloaded, case
        self.said = case.folder / "said" / str(len(case.runs))
        self.err = self.said / "0.err"
        self.pid = preloaded.start([case.words], case.environment, self.said)

    def ended(self, seconds: float) -> int | None:
        return self.preloaded.ended(seconds)


class Whole:
    """Runs of a case as processes of their own, each with a temporary Prefect server."""

    def __init__(self, _: object, case: Case) -> None:
        self.said = case.folder / "said" / str(len(case.runs))
        self.said.mkdir(parents=True)
        self.err = self.said / "0.err"
        command = [
            sys.executable,
            "-c",
            "from cloister.flows.cli.app import main; main()",
            *case.words,
        ]
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith("PREFECT_API")
        }
        with (self.said / "0.out").open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command, env=kept | case.environment, stdout=out, stderr=err, start_new_session=True
            )
        self.pid = self.process.pid

    def ended(self, seconds: float) -> int | None:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def run(preloaded, case: Case, kill: Kill | None) -> Run:
    """Run the command of a case, and kill it if it has not ended by then."""
    running = (Whole if case.whole else Forked)(preloaded, case)
    case.sessions.append(running.pid)
    code, hit = None, None
    if kill is not None:
        code = reached(running, kill)
        if code is None:
            hit = last_step(read(running.err))
            send(kill.how, running.pid)
    code = running.ended(LONGEST) if code is None else code
    if code is None:
        send("kill group", running.pid)
        running.ended(LONGEST)
        raise AssertionError(f"{case.words} hangs after {hit}, {kill}")
    return Run(code, read(running.said / "0.out"), read(running.err), hit)


def reached(running: Forked | Whole, kill: Kill) -> int | None:
    """Wait for the moment of a kill; the exit code, if the run ends before."""
    while kill.line is not None and kill.line not in read(running.err):
        code = running.ended(0.005)
        if code is not None:
            return code
    return running.ended(kill.seconds)


def send(how: str, pid: int) -> None:
    (os.killpg if how == "kill group" else os.kill)(pid, SIGNALS[how])


def last_step(err: str) -> str:
    lines = re.findall(r"^[0-9:]{8} (.*)\n", err, re.MULTILINE)
    return lines[-1] if lines else "start"


def processes(session: int) -> Iterator[str]:
    """What still runs of a session."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (
                stat.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            yield f"{stat.parent.name}: {command[:120]}"


def orphans(case: Case) -> list[str]:
    """Processes that the runs of a case left behind; they are ended."""
    deadline = time.monotonic() + GRACE
    left = [each for session in case.sessions for each in processes(session)]
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left = [each for session in case.sessions for each in processes(session)]
    for each in left:
        os.kill(int(each.partition(":")[0]), signal.SIGKILL)
    return left
