"""Which worker of the suite takes which file."""

from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

# Folders and files whose tests share a Prefect server, a release and processes that have loaded
# everything: a worker makes them once, and that takes half a minute.
RELEASING = {
    "compatibility",
    "end_to_end",
    "orchestration",
    "test_fingerprints.py",
    "test_flips.py",
    "test_hostile_names.py",
    "test_random_kills.py",
}


class ByRoom(LoadFileScheduling):
    """The first worker begins with the files that release, the others with those that compute.

    Who has done its own takes those that are left.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        first = node is self.nodes[0]
        same_room = (file for file in self.workqueue if _releases(file) is first)
        self.workqueue.move_to_end(next(same_room, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)


def _releases(file: str) -> bool:
    return not RELEASING.isdisjoint(file.split("/"))
