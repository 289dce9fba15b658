"""The real command killed at random moments: the same command ends what was charged, once.

Each case is drawn from its seed: command, method, database, home, how and when it is killed, how
often. Most run in forks of a process that has imported everything and share one Prefect server; a
few are whole processes that start their own, in an empty home. ``-s`` shows which steps were hit.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cloister.privacy.ledger import State
from tasks.ledger.queries import existing_ledger
from tasks.ledger.verify import verify_records
from tasks.runtime.home import Home

pytestmark = pytest.mark.timeout(
    3600
)  # seconds; on a busy machine the first test waits long for its home

CASES = 300
FEW = (4, 7)  # seeds of the default suite: a release on each database, killed once

METHODS = ("independent", "dpview", "mixture", "kamino")
STEPS = {
    "release": "sequence search reserve validate spend train weights sample evaluate certify "
    "register version publish",
    "measure": "plan reserve open spend measure write",
    "sample": "",
}
SIGNALS = {
    "kill": signal.SIGKILL,
    "kill group": signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "interrupt": signal.SIGINT,
}

SECONDS = {
    "release": 5.0,
    "measure": 2.5,
    "sample": 1.5,
}  # about what a command takes here; kills go beyond
WHOLE_SECONDS = 40.0  # the same, with the start of Python and of a Prefect server, in an empty home
LONGEST = 240.0  # seconds after which a command hangs
GRACE = 10.0  # seconds that what a killed command had started may take to end

UNWANTED = re.compile("traceback|unforeseen|failed inside|withheld", re.IGNORECASE)
RESUMED = re.compile("resum|go(es|ing) on|already|was finished|had ended", re.IGNORECASE)
LEFT_OVER = re.compile(r"^\..*|.*\.(part|parts|unfinished|tmp)$")


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
        line = f'"step": "{rng.choice(steps)}", "state": "{rng.choice(("started", "finished"))}"'
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
        self.method = self.rng.choices(METHODS, (12, 4, 3, 1))[0]
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
        command = [sys.executable, "-c", "from flows.cli.app import main; main()", *case.words]
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
    lines = [
        json.loads(line)
        for line in err.splitlines()
        if line.startswith('{"time"') and line.endswith("}")
    ]
    return f"{lines[-1]['step']} {lines[-1]['state']}" if lines else "start"


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


def left_over(case: Case) -> list[str]:
    """Unfinished files beside the output, in the release's folder and in the temporary folder."""
    wanted = {case.out}
    beside = [path for path in case.work.iterdir() if path not in wanted]
    held = existing_ledger(case.home)
    releases = [case.home.release(release.id) for release in held.releases("kills")] if held else []
    inside = [
        p for folder in (*releases, case.out) for p in folder.rglob("*") if LEFT_OVER.match(p.name)
    ]
    ended = case.runs[-1].hit is None
    temporary = [
        *(case.folder / "tmp").iterdir(),
        *((case.home.folder / "tmp").glob("*") if ended else ()),
    ]
    return [str(path) for path in (*beside, *inside, *temporary)]


def problems(case: Case) -> Iterator[str]:
    """Everything that is wrong after the command of a case has ended."""
    last = case.runs[-1]
    for number, done in enumerate(case.runs):
        if found := UNWANTED.search(done.out + done.err):
            around = (done.out + done.err)[max(0, found.start() - 300) :][:600]
            yield f"run {number} says {found[0]!r}: {around}"
    found_again = case.command == "sample" and "exists" in last.err and case.out.is_file()
    if last.code != 0 and not found_again and not (last.hit and was_told(case)):
        yield f"ended with {last.code}: {last.err[-400:]}"
    yield from (f"left running: {each}" for each in orphans(case))
    yield from (f"left over: {each}" for each in left_over(case))
    yield from (f"verify: {each}" for each in verify_records(case.home, None)[1])
    if case.command == "release" and case.has_out:
        yield from (f"verify out: {each}" for each in verify_records(case.home, str(case.out))[1])
    if case.command != "sample":
        yield from charge_problems(case)
    if not case.out.exists() and (case.command != "release" or case.has_out):
        yield "the output is missing"


def was_told(case: Case) -> bool:
    """Whether the killed run had reported its end, and the ledger knows: its command has ended."""
    ledger = existing_ledger(case.home) if case.command != "sample" else None
    releases = ledger.releases("kills") if ledger else []
    return any(release.state is State.CANDIDATE and not release.undelivered for release in releases)


def charge_problems(case: Case) -> Iterator[str]:
    """Problems of the charge and the answers of a case, and of the report of its last run."""
    ledger = existing_ledger(case.home)
    assert ledger is not None
    releases = ledger.releases("kills")
    if len(releases) != 1 or ledger.budget("kills", "row").spent != 1:
        yield f"charged {ledger.budget('kills', 'row').spent} in {len(releases)} releases"
        return
    states = Counter(moved.state for moved in releases[0].steps)
    if any(states[state] != 1 for state in (State.RESERVED, State.SPENT, State.CANDIDATE)):
        yield f"went through {states}"
    if not case.journal.startswith(case.answers):
        yield "the journal lost or changed an answer"
    if case.answers and not RESUMED.search(case.runs[-1].out + case.runs[-1].err):
        yield "the last run does not say that it resumed or found the release"


@pytest.fixture(scope="session")
def hits() -> Iterator[Counter[str]]:
    """How many kills hit each step."""
    counted: Counter[str] = Counter()
    yield counted
    print("\nkills by step:", json.dumps(dict(counted.most_common()), indent=1), counted.total())


@pytest.fixture(scope="session")
def approved(released, tmp_path_factory) -> tuple[Path, str]:
    """A home with one release that was approved; its id."""
    from flows.review import move_release

    home = tmp_path_factory.mktemp("approved") / "home"
    shutil.copytree(released.place.home.folder, home)
    own = Home.current({"CLOISTER_HOME": str(home)})
    move_release(own, released.id, "approved", "officer", "sound")
    return home, released.id


def kept_by(case: Case) -> Callable[[str, list[str]], set[str]]:
    """Parts of a home that are left out: with a ledger elsewhere, those of its own ledger."""
    return (
        shutil.ignore_patterns("ledger.db*", "r-*", "end")
        if case.ledger
        else shutil.ignore_patterns()
    )


@pytest.fixture
def new_case(
    approved: tuple[Path, str],
    tmp_path: Path,
    postgres_schemas: Callable[[], AbstractContextManager[str]],
    write_world: Callable[..., Path],
) -> Iterator[Callable[[int], Case]]:
    """Makes cases."""
    with ExitStack() as schemas:

        def make(seed: int) -> Case:
            case = Case(seed, tmp_path, None, approved[1])
            if seed % 2 and case.command != "sample":
                case.ledger = schemas.enter_context(postgres_schemas())
            write_world(case.folder, "kills", measured=case.command == "measure")
            (case.folder / "tmp").mkdir()
            if not case.whole:
                shutil.copytree(approved[0], case.folder / "home", ignore=kept_by(case))
            return case

        yield make
        shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.parametrize(
    "seed",
    [
        *FEW,
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(CASES) if seed not in FEW),
    ],
)
def test_a_killed_command_is_ended_by_the_same_command(
    seed: int, new_case: Callable[[int], Case], preloaded, hits: Counter[str]
) -> None:
    case = new_case(seed)
    duration = WHOLE_SECONDS if case.whole else SECONDS[case.command]
    kills = [Kill.drawn(case.rng, case.command, duration) for _ in range(case.kills)]
    for kill in (*kills, None):
        held = case.journal
        assert held.startswith(case.answers)
        case.answers = held
        case.runs.append(run(preloaded, case, kill))
        if case.runs[-1].hit is None:
            break
        place = "postgresql" if case.ledger else "sqlite"
        hits.update(
            (f"{case.command} {case.runs[-1].hit}", f"by {kill.how if kill else ''}", f"on {place}")
        )
        if was_told(case):
            break
    found = list(problems(case))
    hits = [run.hit for run in case.runs]
    print(f"\n{seed}: {case.described}, killed at {hits}: {found or 'sound'}")
    assert found == [], kills
