"""Bits flipped, files cut, swapped and removed in a live home: found, refused, or read by nothing.

After each change the commands that read are run, then those that write if they use the file. A
change is *found* if ``verify`` names it, *refused* if a command ends with one clear error, and
*inert* if every command says to the byte what it said before (``sample`` with a seed draws the same
rows; a resumed release ends with the same answers, the ledger holds the same rows). In journals,
models, keys, what is sealed and what is handed on nothing may be inert. ``-s`` counts changes by
kind of file.
"""

import json
import random
import re
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_home import RELEASE, Live, Said, killed_at, reading, said, writing

from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.ledger.notifications import Subscriber, subscribe

pytestmark = pytest.mark.timeout(3600)  # on a busy machine the first test waits for its home

FEW, MORE = 2, 8  # of the default suite, and of the slow one
BATCH = 25
BATCHES = 60  # of the slow suite: 1,500 changes

UNWANTED = re.compile("traceback|unforeseen|failed inside|withheld", re.IGNORECASE)

VOUCHED = re.compile(
    r"^out/|^home/(fingerprint\.)?key$|/journal\.bin$|^home/(notify|recurring)/.*json$"
    r"|^home/releases/(?!unfinished)\w+/((model|public)/|internal/attacks\.html$)"
)

UNMISSED = re.compile(r"^home/(notify|recurring)/")
"""What may be removed: nothing is decided by it then, as docs/operations.md says."""


@dataclass(frozen=True)
class Change:
    """One change to one file."""

    kind: str
    path: Path
    what: str

    @classmethod
    def drawn(cls, live: Live, rng: random.Random) -> "Change":
        kinds = live.kinds()
        kind = rng.choice(sorted(kinds))
        names = ["bit", "bit", "bytes", "zeros", "truncate", "cut", "append", "swap", "remove"]
        return cls(kind, rng.choice(kinds[kind]), rng.choice(names))

    def make(self, live: Live, rng: random.Random) -> bool:
        """Change the file; whether it is another one now."""
        before = self.path.read_bytes()
        if self.what == "remove":
            self.path.unlink()
            return True
        others = [path for path in same_name(live, self.path) if path.read_bytes() != before]
        if self.what == "swap":
            if not others:
                return False
            other = rng.choice(others)
            self.path.write_bytes(other.read_bytes())
            other.write_bytes(before)
            return True
        self.path.write_bytes(CHANGES[self.what](bytearray(before), rng))
        return self.path.read_bytes() != before


def same_name(live: Live, path: Path) -> list[Path]:
    """Files that other releases have in the same place."""
    pattern = RELEASE.sub("*", live.relative(path))
    return [
        other for other in (live.folder / "live").glob(pattern) if other != path and other.is_file()
    ]


def flipped(content: bytearray, rng: random.Random) -> bytes:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def overwritten(content: bytearray, rng: random.Random, by: bytes | None = None) -> bytes:
    start, length = rng.randrange(len(content) + 1), rng.randrange(1, 65)
    content[start : start + length] = (by or rng.randbytes(64))[: min(length, len(content) - start)]
    return bytes(content)


CHANGES = {
    "bit": flipped,
    "bytes": overwritten,
    "zeros": lambda content, rng: overwritten(content, rng, bytes(64)),
    "truncate": lambda content, rng: bytes(content[: rng.randrange(len(content) + 1)]),
    "cut": lambda content, rng: bytes(content[: max(0, len(content) - rng.randrange(1, 65))]),
    "append": lambda content, rng: bytes(content) + rng.randbytes(rng.randrange(1, 65)),
}


def verdict(words: list[str], now: Said, before: Said) -> str:
    """What became of a change, as one command shows it."""
    code, out, err = now
    if UNWANTED.search(out + err):
        return f"MISSED: {' '.join(words[:2])}: {err[-300:]}"
    if words[0] == "verify" and code == 1 and json.loads(out or "{}").get("findings"):
        return "found"
    if (
        code in (1, 2)
        and len([line for line in err.splitlines() if line.startswith("error: ")]) == 1
    ):
        return "found" if words[0] == "verify" else "refused"
    if (code, out) == before[:2]:
        return "inert"
    return f"MISSED: {' '.join(words[:2])}: {code} {out[-300:]} {err[-300:]}"


def worst(verdicts: list[str]) -> str:
    """A change is missed if one command missed it; found, if one found it."""
    missed = [each for each in verdicts if each.startswith("MISSED")]
    return (
        missed[0]
        if missed
        else next((each for each in ("found", "refused") if each in verdicts), "inert")
    )


def after(preloaded, live: Live, change: Change) -> str:
    """What becomes of a change that was made."""
    read = reading(live)
    verdicts = [
        verdict(*each)
        for each in zip(read, said(preloaded, live, read), live.before["read"], strict=True)
    ]
    if worst(verdicts) == "inert" and used_by_writing(change.kind):
        verdicts += written(preloaded, live)
    return worst(verdicts)


def vouched(change: Change, found: str) -> str:
    """An inert change is missed in what a release rests on: there every byte is vouched for."""
    if change.what == "remove" and UNMISSED.search(change.kind):
        return found
    return f"MISSED: {change.kind} is accepted as it is" if found == "inert" else found


def same_ledger(live: Live) -> bool:
    """Whether the ledger holds the same tables, guards and rows, wherever its file differs."""
    return dump(live.folder / "live") == dump(live.folder / "kept")


def dump(place: Path) -> list[str] | None:
    try:
        with closing(sqlite3.connect(f"file:{place}/home/ledger.db?mode=ro", uri=True)) as ledger:
            return list(ledger.iterdump())
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def used_by_writing(kind: str) -> bool:
    return (
        "unfinished" in kind
        or re.search(r"^home/(key|ledger|mlflow/mlflow|dvc/)", kind) is not None
    )


def written(preloaded, live: Live) -> Iterator[str]:
    """How writing commands react to a change: a resumed release ends with the answers it had."""
    commands = writing(live)
    for words, (code, out, err) in zip(commands, said(preloaded, live, commands), strict=True):
        if code == 0 and not UNWANTED.search(out + err):
            yield (
                "inert"
                if words[0] == "review" or ended_alike(live)
                else "MISSED: resumed with other answers"
            )
        else:
            yield verdict(words, (code, out, err), (0, "", ""))


def ended_alike(live: Live) -> bool:
    release = live.of("unfinished")
    assert release
    paths = [
        live.folder / place / "home" / "journals" / release / "journal.bin"
        for place in ("live", "kept")
    ]
    ledger = existing_ledger(live.home)
    assert ledger
    ended = ledger.release(release).state.value == "candidate"
    return ended and ledger.verify() == [] and paths[0].read_bytes() == paths[1].read_bytes()


def changed(
    preloaded,
    live: Live,
    seed: str,
    table: dict[str, Counter[str]],
    record_property: Callable[[str, object], None],
) -> str | None:
    """Make one change and put everything back; what is wrong."""
    rng = random.Random(seed)
    change = Change.drawn(live, rng)
    try:
        if not change.make(live, rng):
            return None
        altered = VOUCHED.search(change.kind) or not same_ledger(live)
        found = (
            vouched(change, after(preloaded, live, change))
            if altered
            else after(preloaded, live, change)
        )
    finally:
        live.restore()
    table[change.kind][found.partition(":")[0]] += 1
    record_property("changes", found.partition(":")[0])
    print(f"\n{seed}: {change.what} of {change.kind}: {found}")
    return found if found.startswith("MISSED") else None


def ready(preloaded, live: Live) -> Live:
    """The home as it is, once each command was run on it."""
    live.keep()
    live.before["read"] = said(preloaded, live, reading(live))
    assert [code for code, *_ in live.before["read"]] == [0] * len(live.before["read"]), (
        live.before["read"]
    )
    live.restore()
    return live


@pytest.fixture(scope="session")
def table() -> Iterator[dict[str, Counter[str]]]:
    """How many changes of each kind of file were found, refused, inert and missed."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    yield counted
    columns = ("found", "refused", "inert", "MISSED")
    print(f"\n{'':60} {'changes':>8} " + " ".join(f"{name:>8}" for name in columns))
    for kind, row in [*sorted(counted.items()), ("all", sum(counted.values(), Counter()))]:
        print(f"{kind:60} {row.total():8} " + " ".join(f"{row[name]:8}" for name in columns))


@pytest.fixture(scope="session")
def small(preloaded, released, tmp_path_factory) -> Live:
    """A home with one approved release, attacked before, a registration and a subscriber."""
    from cloister.flows.review import move_release
    from cloister.tasks.stores.prefect_registration import Registration, ReleaseSchedule

    live = Live(tmp_path_factory.mktemp("small"), {released.id: "approved"})
    shutil.copytree(released.place.home.folder, live.home.folder)
    shutil.copytree(released.out, live.folder / "live" / "out")
    keep = ["rules", "set", "--keep", "measures=9", "--reason", "audit"]
    attack = ["review", "attack", released.id, "--reason", "small clubs"]
    made = said(preloaded, live, [keep, attack])
    assert [code for code, *_ in made] == [0] * len(made), made
    move_release(live.home, released.id, "approved", "officer", "sound")
    subscribe(live.home, Subscriber("mailto:a@b.org", ("candidate",), "", "smtp://127.0.0.1:25"))
    schedule, due = ReleaseSchedule("0 3 1 * *", "UTC"), "2026-11-01T03:00:00+00:00"
    Registration("clubs", "id", {"request": {}}, schedule, "/", "", due).write(live.home)
    return ready(preloaded, live)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed >= FEW)) for seed in range(MORE)]
)
def test_a_change_is_found_or_refused_or_read_by_nothing(
    preloaded, small: Live, seed: int, table, record_property
) -> None:
    assert changed(preloaded, small, f"small {seed}", table, record_property) is None


@pytest.fixture(scope="session")
def large(preloaded, released, write_world, tmp_path_factory) -> Live:
    """A home with releases in all states, of two methods, one killed twice, and a measured spec."""
    folder = tmp_path_factory.mktemp("large")
    live = Live(folder, {})
    shutil.copytree(released.place.home.folder, live.home.folder)
    spec, draft = write_world(folder, "flips"), write_world(folder, "draft", measured=True)
    orders = {
        "approved": ["release", spec, "--out", folder / "live" / "out", "--csv"],
        "rejected": ["release", spec, "--epsilon", "1/2"],
        "candidate": ["release", spec, "--epsilon", "1/3"],
        "measured": [
            "spec",
            "measure",
            draft,
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--out",
            folder / "live" / "new.yaml",
        ],
        "unfinished": ["release", spec, "--epsilon", "1/4"],
    }
    live.order = [str(word) for word in orders["unfinished"]]
    made = said(preloaded, live, list(orders.values())[:-1])
    assert [code for code, *_ in made] == [0] * len(made), made
    killed_at(preloaded, live, "record", "started")
    killed_at(preloaded, live, "evaluate", "finished")
    ledger = existing_ledger(live.home)
    assert ledger
    ids = [release.id for release in ledger.releases() if release.request.dataset != "clubs"]
    live.states = {released.id: "kamino"} | dict(zip(ids, orders, strict=True))
    review(preloaded, live)
    return ready(preloaded, live)


def review(preloaded, live: Live) -> None:
    moves = {"approved": "approve", "rejected": "reject", "kamino": "approve"}
    commands = [
        ["review", move, live.of(state), "--reason", "seen"] for state, move in moves.items()
    ]
    made = said(preloaded, live, commands)
    assert [code for code, *_ in made] == [0] * len(made), made


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_change_is_found_or_refused_or_read_by_nothing(
    preloaded, large: Live, batch: int, table, record_property
) -> None:
    found = (
        changed(preloaded, large, f"large {batch} {number}", table, record_property)
        for number in range(BATCH)
    )
    assert [missed for missed in found if missed] == []
