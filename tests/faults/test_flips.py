"""Bits flipped, files cut, swapped and removed in a live home: found, refused, or read by nothing.

After each change the commands that read are run, then those that write if they use the file. A
change is *found* if ``verify`` names it, *refused* if a command ends with one clear error, and
*inert* if every command says to the byte what it said before (``sample`` with a seed draws the same
rows; a resumed release ends with the same answers, the ledger holds the same rows). In journals,
models, the key and what is handed on nothing may be inert. ``-s`` counts changes by kind of file.
"""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tasks.ledger.queries import existing_ledger
from tasks.runtime.home import Home

pytestmark = pytest.mark.timeout(
    3600
)  # seconds; on a busy machine the first test waits long for its home

FEW = 8
BATCH = 25
BATCHES = 60  # of the slow suite: 1,500 changes

LONGEST = 240.0  # seconds after which commands hang

UNWANTED = re.compile("traceback|unforeseen|failed inside|withheld", re.IGNORECASE)
RELEASE = re.compile(r"r-[0-9a-z]{10}")
DIGEST = re.compile(r"[0-9a-f]{30,}|(?<=/)[0-9a-f]{2}(?=/)")

VOUCHED = re.compile(
    r"^out/|^home/key$|/journal\.bin$|^home/releases/(?!unfinished)\w+/(model|public)/"
)

Said = tuple[int | None, str, str]


@dataclass
class Live:
    """A home in use, the folder that was handed on, and copies of both as they were.

    ``states`` says where each release is, ``order`` are the words of the unfinished one, and
    ``before`` what each command said on the untouched home.
    """

    folder: Path
    states: dict[str, str]
    order: list[str] = field(default_factory=list)
    before: dict[str, list[Said]] = field(default_factory=dict)

    @property
    def home(self) -> Home:
        return Home.current({"CLOISTER_HOME": str(self.folder / "live" / "home")})

    def of(self, state: str) -> str | None:
        return next((release for release, held in self.states.items() if held == state), None)

    def kinds(self) -> dict[str, list[Path]]:
        """All files, by what they are."""
        found = defaultdict(list)
        for path in sorted((self.folder / "live").rglob("*")):
            if path.is_file():
                found[self.kind(path)].append(path)
        return found

    def kind(self, path: Path) -> str:
        named = RELEASE.sub(lambda match: self.states.get(match[0], "other"), self.relative(path))
        return DIGEST.sub("*", named)

    def relative(self, path: Path) -> str:
        return path.relative_to(self.folder / "live").as_posix()

    def keep(self) -> None:
        """Copy everything, to go back to."""
        shutil.copytree(self.folder / "live", self.folder / "kept")

    def restore(self) -> None:
        """Put back what was changed, and take away what was added."""
        live, kept = self.folder / "live", self.folder / "kept"
        for path in [path for path in live.rglob("*") if not path.is_dir()]:
            if not (kept / path.relative_to(live)).is_file():
                path.unlink()
        for path in [path for path in kept.rglob("*") if path.is_file()]:
            place = live / path.relative_to(kept)
            if not place.is_file() or marks(place) != marks(path):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, place)


def marks(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


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


def reading(live: Live) -> list[list[str]]:
    """The commands that read; what they draw goes beside the home."""
    drawn = live.folder / "drawn.csv"
    drawn.unlink(missing_ok=True)
    approved = live.of("approved")
    assert approved
    return [
        ["verify", "--json"],
        ["verify", str(live.folder / "live" / "out"), "--json"],
        ["ledger", "list", "--json"],
        ["budget", "show", "--json"],
        ["review", "list", "--json"],
        *(
            ["ledger", "show", release, "--json"]
            for release in (approved, live.of("unfinished"))
            if release
        ),
        ["report", approved, "--json"],
        ["sample", approved, "--rows", "20", "--seed", "7", "--out", str(drawn), "--json"],
    ]


def writing(live: Live) -> list[list[str]]:
    """The commands that write: a review, and the unfinished release again."""
    candidate = live.of("candidate")
    review = [["review", "approve", candidate, "--reason", "sound", "--json"]] if candidate else []
    return [*review, *([live.order] if live.order else [])]


def said(preloaded, live: Live, commands: list[list[str]]) -> list[Said]:
    """What commands say, and the rows that they draw.

    None for the exit code of one that did not end by itself.
    """
    folder = live.folder / "said"
    shutil.rmtree(folder, ignore_errors=True)
    preloaded.start(commands, {"CLOISTER_HOME": str(live.home.folder)}, folder)
    assert preloaded.ended(LONGEST) is not None, "commands hang"
    drawn = live.folder / "drawn.csv"
    rows = drawn.read_text() if drawn.exists() else ""
    texts = [(folder / f"{number}.code", number) for number in range(len(commands))]
    return [
        (
            int(code.read_text()) if code.exists() else None,
            (folder / f"{number}.out").read_text(errors="replace")
            + (rows if "sample" in commands[number] else ""),
            (folder / f"{number}.err").read_text(errors="replace"),
        )
        if (folder / f"{number}.out").exists()
        else (None, "", "")
        for code, number in texts
    ]


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


def changed(preloaded, live: Live, seed: str, table: dict[str, Counter[str]]) -> str | None:
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
    """A home with one approved release."""
    from flows.review import move_release

    live = Live(tmp_path_factory.mktemp("small"), {released.id: "approved"})
    shutil.copytree(released.place.home.folder, live.home.folder)
    shutil.copytree(released.out, live.folder / "live" / "out")
    move_release(live.home, released.id, "approved", "officer", "sound")
    return ready(preloaded, live)


@pytest.mark.parametrize("seed", range(FEW))
def test_a_change_is_found_or_refused_or_read_by_nothing(
    preloaded, small: Live, seed: int, table
) -> None:
    assert changed(preloaded, small, f"small {seed}", table) is None


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
    killed_at(preloaded, live, "version", "started")
    killed_at(preloaded, live, "evaluate", "finished")
    ledger = existing_ledger(live.home)
    assert ledger
    ids = [release.id for release in ledger.releases() if release.request.dataset != "clubs"]
    live.states = {released.id: "kamino"} | dict(zip(ids, orders, strict=True))
    review(preloaded, live)
    return ready(preloaded, live)


def killed_at(preloaded, live: Live, step: str, state: str) -> None:
    """Start the unfinished release and kill it with all that it started."""
    folder = live.folder / "said"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "0.err").touch()
    pid = preloaded.start([live.order], {"CLOISTER_HOME": str(live.home.folder)}, folder)
    while f'"step": "{step}", "state": "{state}"' not in (folder / "0.err").read_text():
        assert preloaded.ended(0.01) is None
    os.killpg(pid, signal.SIGKILL)
    assert preloaded.ended(LONGEST) == -signal.SIGKILL


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
    preloaded, large: Live, batch: int, table
) -> None:
    seeds = [f"large {batch} {number}" for number in range(BATCH)]
    assert [missed for seed in seeds if (missed := changed(preloaded, large, seed, table))] == []
