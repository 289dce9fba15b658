"""What laws of all methods need of one whose rows are charged one by one, or not as an epsilon."""

from dataclasses import replace
from typing import Any

from cloister.models.deniability.seeding import PLAUSIBLE_DENIABILITY
from cloister.models.registry import create
from cloister.models.task import Plan, Task
from cloister.privacy.accounting.composition import accountable, event_of_stages
from cloister.privacy.events import Event
from cloister.schema.spec import Spec


def suited(method: str, task: Task) -> Task:
    """The task, with a guarantee under which the method makes as many rows as the table has."""
    if len(create(method).guarantees) == 1:
        return task
    return replace(task, guarantee=PLAUSIBLE_DENIABILITY)


def suited_spec(method: str, spec: Spec) -> Spec:
    """The spec, with a guarantee as of :func:`suited`."""
    if len(create(method).guarantees) == 1:
        return spec
    release = spec.release.model_copy(update={"guarantee": PLAUSIBLE_DENIABILITY})
    return spec.model_copy(update={"release": release})


def accounted(plan: Plan[Any]) -> Event:
    """All of a plan that an epsilon bounds."""
    return event_of_stages(accountable(plan.stages))


def givable(model: Any, rows: int) -> int:
    """As many of some rows as a model may give."""
    return rows if model.capacity is None else min(rows, model.capacity)
