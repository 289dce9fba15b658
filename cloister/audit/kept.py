"""Trials that processes make, and that a file keeps: the same command goes on where it ended."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Self, TypeVar

from cloister.tasks.home.home import AUDITS, Home, private_folder
from cloister.tasks.home.process import audit_version

TrialT = TypeVar("TrialT", bound=tuple[Any, ...])

MadeT = TypeVar("MadeT")

_MEMORY = Path("/dev/shm")  # noqa: S108 the folders in it have random names
"""Journals lie here where it exists, in memory: waiting for a disk took a third of a trial."""

_CHUNK = 5.0
"""Seconds of trials of a process before it reads the tables anew, and reports."""

_LEAST = 10
"""Trials of each attack whatever the time: they show too little noise, if not a sensitivity."""


@dataclass(frozen=True)
class Effort:
    """What attacks are worth: so many trials each, in so many seconds of one core for all."""

    trials: int
    seconds: float = math.inf
    processes: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    @classmethod
    def within(cls, trials: int, minutes: float | None) -> Effort:
        """The effort for attacks that together take about some minutes at most."""
        effort = cls(trials)
        return (
            effort if minutes is None else replace(effort, seconds=minutes * 60 * effort.processes)
        )

    def pool(self) -> ProcessPoolExecutor:
        """Its processes."""
        return ProcessPoolExecutor(self.processes, get_context("forkserver"))


@lru_cache(maxsize=1)
def made_here(kind: Callable[[Any, Path], MadeT], attack: Any) -> MadeT:
    """What a kind makes of an attack, once in this process, in a folder that goes when it ends."""
    where = _MEMORY if _MEMORY.exists() else None
    folder = TemporaryDirectory(prefix="cloister-audit-", dir=where)
    made = kind(attack, Path(folder.name))
    made.temporary = folder  # type: ignore[attr-defined]
    return made


@dataclass(frozen=True)
class TrialFile(Generic[TrialT]):
    """The trials of an attack, named tuples of a ``kind``, in a file: a line each."""

    path: Path
    kind: Callable[..., TrialT]

    @classmethod
    def of(cls, attack: Any, kind: Callable[..., TrialT], home: Home, name: str = "") -> Self:
        """That of an attack by the present code, in a home; ``name`` begins that of the file."""
        fields = {**asdict(attack), "code": audit_version()}
        text = json.dumps(fields, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(home.folder / AUDITS / f"{name}{digest}.jsonl", kind)

    def read(self) -> list[TrialT]:
        """All trials; none where there is no file."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [self.kind(*json.loads(line)) for line in lines]

    def fill(
        self,
        pool: ProcessPoolExecutor,
        make: Callable[[Sequence[int]], list[TrialT]],
        effort: Effort,
    ) -> Iterator[tuple[int, float]]:
        """Make the trials that are missing, by number, as far as time allows.

        Gives how many there are, and the seconds that the latest took.
        """
        done, spent, size = len(self.read()), 0.0, 2
        missing = deque(range(done, effort.trials))
        running: set[Future[tuple[list[TrialT], float]]] = set()

        def is_worth_more() -> bool:
            begun = effort.trials - len(missing)
            return bool(missing) and (begun < _LEAST or spent < effort.seconds)

        while running or is_worth_more():
            while len(running) < effort.processes and is_worth_more():
                chunk = [missing.popleft() for _ in range(min(size, len(missing)))]
                running.add(pool.submit(_timed, make, chunk))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for each in ended:
                trials, seconds = each.result()
                self._append(trials)
                done, spent = done + len(trials), spent + seconds
                size = max(math.ceil(len(trials) * min(_CHUNK / seconds, 8)), 2)
                yield done, seconds

    def _append(self, trials: Sequence[TrialT]) -> None:
        private_folder(self.path.parent)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(trial) + "\n" for trial in trials)


def _timed(
    make: Callable[[Sequence[int]], list[TrialT]], numbers: Sequence[int]
) -> tuple[list[TrialT], float]:
    """Some trials, and the seconds that they took."""
    started = time.perf_counter()
    return make(numbers), time.perf_counter() - started
