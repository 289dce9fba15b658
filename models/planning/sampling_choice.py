"""Whether rows are drawn inside supports or one after the other, and why; public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloister.errors import PlanError
from cloister.figures import count_of
from cloister.models.task import RowSampling, Task
from cloister.schema.declarations import Sampling

SEQUENTIAL: Sampling = "sequential"
SUPPORTS: Sampling = "supports"

_WORDS: Mapping[Sampling, str] = {SUPPORTS: "inside supports", SEQUENTIAL: "one after the other"}

_OTHERS: Mapping[Sampling, str] = {SUPPORTS: "kamino", SEQUENTIAL: "mixture or kamino"}
"""Methods that have each way."""

_IN_TURN = 2e-5
"""Seconds for each row and soft constraint that it is drawn against: 2 and 128 rules on Adult."""

_ON_TRIAL = 9_000
"""Rows of the tables that are drawn on trial."""

_NONE = "there is no soft constraint, and rows inside supports keep the hard ones"
_USUAL = "rows inside supports do not depend on each other, and are drawn in linear time"


@dataclass(frozen=True)
class SamplingChoice:
    """A way of drawing rows under soft constraints, why it is taken, and its options."""

    way: Sampling
    reason: str
    options: RowSampling

    @property
    def sequential(self) -> bool:
        """Whether rows are drawn one after the other (Kamino, Algorithm 3)."""
        return self.way == SEQUENTIAL

    def __str__(self) -> str:
        """The choice in words."""
        if not self.sequential:
            return f"inside supports: {self.reason}"
        options = [f"{100 * self.options.resampled:g} % of cells resampled"]
        if self.options.tries:
            options.append(
                f"accept-reject of {count_of(self.options.tries, 'try', 'tries')} a cell"
            )
        return f"row by row (Kamino, Algorithm 3; {', '.join(options)}): {self.reason}"


def seconds_in_turn(task: Task, choice: SamplingChoice) -> float:
    """Seconds that rows take longer to draw one after the other, with tables drawn on trial."""
    if not choice.sequential:
        return 0.0
    drawn = (1.0 + choice.options.resampled) * task.output_rows
    return _IN_TURN * len(task.soft) * (drawn + _ON_TRIAL)


def choose_sampling(task: Task, ways: Sequence[Sampling]) -> SamplingChoice:
    """The way that is asked for, or that a known weight needs, or else the method's usual one.

    ``ways`` are those of the method, the usual one first.

    Raises:
        PlanError: what is asked for contradicts itself or has no effect; names the remedy.
    """
    choice = _choice(task, ways[0])
    _require_sense(task, choice)
    if task.soft and choice.way not in ways:
        raise PlanError(
            f"sampling: {choice.way} ({choice.reason}) is not possible with this method, which "
            f"draws rows {_WORDS[ways[0]]}; use another method, such as {_OTHERS[choice.way]}"
        )
    return choice


def _choice(task: Task, usual: Sampling) -> SamplingChoice:
    asked, weighted = task.sampling, task.weighted_soft
    if asked.way is not None:
        return SamplingChoice(asked.way, "as asked for", asked)
    if weighted:
        reason = f"soft constraint '{weighted[0].name}' has a known weight"
        return SamplingChoice(SEQUENTIAL, reason, asked)
    if usual == SEQUENTIAL and task.soft:
        return SamplingChoice(SEQUENTIAL, "as the paper of the method does", asked)
    return SamplingChoice(SUPPORTS, _USUAL if task.soft else _NONE, asked)


def _require_sense(task: Task, choice: SamplingChoice) -> None:
    asked, weighted = task.sampling, task.weighted_soft
    if choice.sequential and not task.soft:
        raise PlanError(
            "sampling: sequential draws rows by soft constraints, and none can act; make a "
            "constraint soft, or leave sampling out"
        )
    if not choice.sequential and weighted:
        raise PlanError(
            f"soft constraint '{weighted[0].name}' has a known weight, by which rows are drawn one "
            "after the other; leave sampling: supports out, or declare a rate"
        )
    if not choice.sequential and (asked.resampled or asked.tries):
        raise PlanError(
            "resample and accept_reject are options of sampling: sequential; add it, or leave "
            "them out"
        )
