"""The real command killed at random moments: the same command ends what was charged, once.

Each case is drawn from its seed: command, method, database, home, how and when it is killed, how
often. Most run in forks of a process that has imported everything and share one Prefect server; a
few are whole processes that start their own, in an empty home. ``-s`` shows which steps were hit.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from killed_case import Case, Kill, orphans, run

from cloister.privacy.ledger import State
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.verify import verify_records

pytestmark = pytest.mark.timeout(3600)  # on a busy machine the first test waits for its home

CASES = 400  # some 500 kills, since a case has one to three and a few come after the end
FEW = 4  # seed of the default suite: a release that is killed once

# about what a command takes here; kills go beyond
SECONDS = {"release": 5.0, "measure": 2.5, "sample": 1.5}
WHOLE_SECONDS = 40.0  # the same, with the start of Python and of a Prefect server, in an empty home

UNWANTED = re.compile("traceback|unforeseen|failed inside|withheld", re.IGNORECASE)
# Where a signal is raised in what Python or a pool of connections does by the way, they print this.
SIGNALLED = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*"
    r"[\w.]*(?:TerminationSignal|KeyboardInterrupt)\b"
)
RESUMED = re.compile("resum|go(es|ing) on|already|was finished|had ended", re.IGNORECASE)
LEFT_OVER = re.compile(r"^\..*|.*\.(part|parts|unfinished|tmp)$")


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
        words = SIGNALLED.sub("", done.out + done.err) if done.hit else done.out + done.err
        if found := UNWANTED.search(words):
            around = words[max(0, found.start() - 300) :][:600]
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
    from cloister.flows.review import move_release

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
def new_case(approved, tmp_path, postgres_schemas, write_world) -> Iterator[Callable[[int], Case]]:
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed != FEW)) for seed in range(CASES)]
)
def test_a_killed_command_is_ended_by_the_same_command(
    seed: int,
    new_case: Callable[[int], Case],
    preloaded,
    hits: Counter[str],
    record_property: Callable[[str, object], None],
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
        record_property("kills", case.described)
        if was_told(case):
            break
    found = list(problems(case))
    hits = [run.hit for run in case.runs]
    print(f"\n{seed}: {case.described}, killed at {hits}: {found or 'sound'}")
    assert not found, (found, kills)
