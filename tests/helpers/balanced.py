"""Balances the suite by recorded durations: a free worker takes the costliest file that is left."""

import json
from pathlib import Path

from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

RECORD = Path(__file__).parents[1] / "durations.json"
"""Seconds that each file took when ``make test-times`` ran last."""

NEW = 5.0  # seconds of a file without a record: more than most, or it could be the last to begin


class Balanced(LoadFileScheduling):
    """Files in the order of their recorded seconds, the costliest first."""

    seconds: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))

    def _assign_work_unit(self, node: WorkerController) -> None:
        costliest = max(self.workqueue, key=lambda file: self.seconds.get(file, NEW))
        self.workqueue.move_to_end(costliest, last=False)
        super()._assign_work_unit(node)
