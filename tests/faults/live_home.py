"""A home in use, which a test may change and put back, and what commands say of it."""

import os
import re
import shutil
import signal
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from cloister.tasks.home.home import Home

LONGEST = 240.0  # seconds after which commands hang

RELEASE = re.compile(r"r-[0-9a-z]{10}")
DIGEST = re.compile(r"[0-9a-f]{30,}|(?<=/)[0-9a-f]{2}(?=/)")

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


def killed_at(preloaded, live: Live, step: str, state: str) -> None:
    """Start the unfinished release and kill it with all that it started."""
    folder = live.folder / "said"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "0.err").touch()
    pid = preloaded.start([live.order], {"CLOISTER_HOME": str(live.home.folder)}, folder)
    while f" {step} {state}\n" not in (folder / "0.err").read_text():
        assert preloaded.ended(0.01) is None
    os.killpg(pid, signal.SIGKILL)
    assert preloaded.ended(LONGEST) == -signal.SIGKILL
