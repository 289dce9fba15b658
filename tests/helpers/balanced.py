"""Balances the suite by recorded durations: a free worker takes the costliest file that is left."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

TESTS = Path(__file__).parents[1]
RECORD = TESTS / "durations.json"
"""Seconds that each file took when ``make test-times`` ran last."""

NEW = 5.0  # seconds of a file without a record: more than most, or it could be the last to begin

PROCESSES = re.compile(r"\b(children|preloaded|warm_python)\b")
"""Fixtures that start a process which loads everything: files that use one share a worker."""


class Balanced(LoadFileScheduling):
    """Files in the order of their recorded seconds, the costliest first."""

    seconds: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))
    owners: dict[str, WorkerController] = {}

    def _assign_work_unit(self, node: WorkerController) -> None:
        fit = (file for file in self.workqueue if self._fits(file, node))
        costliest = max(fit, key=self._cost, default=max(self.workqueue, key=self._cost))
        for process in processes(costliest):
            self.owners.setdefault(process, node)
        self.workqueue.move_to_end(costliest, last=False)
        super()._assign_work_unit(node)

    def _cost(self, file: str) -> float:
        return self.seconds.get(file, NEW)

    def _fits(self, file: str, node: WorkerController) -> bool:
        return all(self.owners.get(process, node) is node for process in processes(file))


def processes(file: str) -> Iterator[str]:
    """The processes that tests of a file ask for."""
    text = (TESTS.parent / file).read_text(encoding="utf-8")
    return (match[1] for match in PROCESSES.finditer(text))
