"""What a release did to the data and what it cost, for its certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.accountants import ACCOUNTANTS, leak, spend
from cloister.privacy.certificate.schema import AccountedCost, MechanismRecord, StageSpend
from cloister.privacy.events import (
    Bounded,
    Composed,
    Event,
    GaussianCounts,
    LaplaceCounts,
    Parallel,
    Relation,
    SampledGaussian,
    Selection,
    Thresholded,
)

_FREE_BEFORE = (
    "sequence and search",
    "order of the attributes and all parameters, from public declarations alone",
)
_FREE_AFTER = ("sampling", "rows drawn from the released model: post-processing, {many}")

_SOURCES: dict[type[Event], tuple[str, str, str]] = {
    GaussianCounts: (
        "discrete Gaussian noise on integer counts",
        "exact, on integers (OpenDP)",
        "Canonne, Kamath, Steinke, arXiv 2004.00010",
    ),
    LaplaceCounts: (
        "discrete Laplace noise on integer counts",
        "exact, on integers (OpenDP)",
        "Ghosh, Roughgarden, Sundararajan, 2009",
    ),
    Thresholded: (
        "noisy counts of non-empty cells, those under a public threshold withheld",
        "exact, on integers (OpenDP)",
        "Korolova et al., 2009; Wilson et al., arXiv 1909.01917",
    ),
    Selection: ("exponential mechanism", "exact", "McSherry, Talwar, 2007"),
    SampledGaussian: (
        "DP-SGD: Poisson-sampled, clipped gradients with normal noise",
        "normal numbers of four draws, rounded to a grid",
        "Abadi et al., arXiv 1607.00133",
    ),
    Bounded: (
        "mechanism with a privacy argument of its own",
        "see docs/privacy.md",
        "docs/privacy.md",
    ),
}


class PlannedStage(Protocol):
    """A stage of a plan: its name, what it does to the data, and what it is for."""

    @property
    def name(self) -> str: ...

    @property
    def event(self) -> Event: ...

    @property
    def explanation(self) -> str: ...


def accounted_cost(
    stages: Sequence[PlannedStage], delta: Fraction, relation: Relation | str
) -> AccountedCost:
    """What all stages cost together.

    Raises:
        UnsupportedEvent: no accountant reads them.
    """
    total = spend(_all(stages), delta, relation)
    return AccountedCost(epsilon=total.epsilon, accountant=total.accountant)


def second_cost(
    stages: Sequence[PlannedStage], delta: Fraction, relation: Relation | str
) -> AccountedCost | None:
    """The least answer of any accountant but that of `accounted_cost`; None if no other has one.

    Events on disjoint parts are read by the first accountant only.
    """
    first, event = accounted_cost(stages, delta, relation), _all(stages)
    left = delta - leak(event, relation)
    try:
        leaves = _leaves(event)
    except UnsupportedEvent:
        return None
    answers = []
    for name, accountant in ACCOUNTANTS.items():
        if name != first.accountant:
            try:
                answers.append(
                    (
                        accountant.epsilon(
                            leaves, math.nextafter(float(left), 0), Relation(relation)
                        ),
                        name,
                    )
                )
            except UnsupportedEvent:
                continue
    finite = [answer for answer in answers if answer[0] < math.inf]
    return AccountedCost(epsilon=min(finite)[0], accountant=min(finite)[1]) if finite else None


def stage_spends(
    stages: Sequence[PlannedStage],
    delta: Fraction,
    relation: Relation | str,
    capacity: int | None = None,
) -> tuple[StageSpend, ...]:
    """Each stage with its cost alone, between the two stages that cost nothing."""
    spends = [_free(*_FREE_BEFORE)]
    for stage in stages:
        cost = spend(stage.event, delta, relation)
        spends.append(
            StageSpend(
                name=stage.name,
                purpose=stage.explanation,
                done=describe(stage.event),
                epsilon=cost.epsilon,
                accountant=cost.accountant,
                event=stage.event.to_json(),
            )
        )
    many = "any number of them" if capacity is None else f"at most {capacity} of them"
    return (*spends, _free(_FREE_AFTER[0], _FREE_AFTER[1].format(many=many)))


def describe(event: Event) -> str:
    """What was done to the data, in words; noise in rows, or in multiples of the clipping norm."""
    if isinstance(event, Composed):
        return "; ".join(
            f"{times} times: {describe(e)}" if times > 1 else describe(e)
            for e, times in event.parts
        )
    if isinstance(event, Parallel):
        return f"on disjoint parts of the rows: {'; '.join(describe(part) for part in event.parts)}"
    if isinstance(event, Thresholded):
        return f"{describe(event.counts)} of non-empty cells, small ones withheld"
    return _describe_simple(event)


def _describe_simple(event: Event) -> str:
    match event:
        case GaussianCounts():
            return f"discrete Gaussian noise of scale {_scale(event):.4g} rows on counts"
        case LaplaceCounts():
            scale = float(event.sensitivity.l1 / event.epsilon)
            return f"discrete Laplace noise of scale {scale:.4g} rows on counts"
        case SampledGaussian():
            return (
                f"{event.steps} steps of DP-SGD on {float(event.rate):.2%} of the rows, drawn "
                f"anew, with noise of {float(event.noise_multiplier):.4g} times the clipping norm"
            )
        case Selection():
            return f"a choice by the exponential mechanism at epsilon {float(event.epsilon):.4g}"
        case Bounded():
            epsilon, delta = float(event.epsilon), float(event.delta)
            return f"a mechanism shown to be ({epsilon:.4g}, {delta:.4g})-private"
    raise UnsupportedEvent(f"No words are known for a {type(event).__name__} event.")


def kinds(stages: Sequence[PlannedStage]) -> list[type[Event]]:
    """The kinds of simple events in the stages, in the order of the table above."""
    found = {type(leaf) for stage in stages for leaf in _simple(stage.event)}
    return [kind for kind in _SOURCES if kind in found]


def mechanisms(stages: Sequence[PlannedStage], secure: bool) -> tuple[MechanismRecord, ...]:
    """The mechanisms of the stages, with their samplers; those of a test are stand-ins."""
    rows = [_SOURCES[kind] for kind in kinds(stages)]
    stand_in = "REPEATABLE STAND-IN FOR TESTS: not private"
    return tuple(
        MechanismRecord(name=name, sampler=sampler if secure else stand_in, source=source)
        for name, sampler, source in rows
    )


def _free(name: str, purpose: str) -> StageSpend:
    return StageSpend(
        name=name,
        purpose=purpose,
        done="the data is not read",
        epsilon=0.0,
        accountant="",
        event=None,
    )


def _all(stages: Sequence[PlannedStage]) -> Composed:
    return Composed(tuple((stage.event, 1) for stage in stages))


def _scale(event: GaussianCounts) -> float:
    return float(event.noise_multiplier) * math.sqrt(event.sensitivity.l2_squared)


def _simple(event: Event) -> Iterator[Event]:
    if isinstance(event, Composed):
        for part, _ in event.parts:
            yield from _simple(part)
    elif isinstance(event, Parallel):
        for part in event.parts:
            yield from _simple(part)
    else:
        yield event


def _leaves(event: Event) -> tuple[tuple[Event, int], ...]:
    """Simple events and how often each happened, as accountants read them."""
    times: dict[Event, int] = {}
    for leaf, count in _counted(event):
        times[leaf] = times.get(leaf, 0) + count
    return tuple(sorted(times.items(), key=repr))


def _counted(event: Event) -> Iterator[tuple[Event, int]]:
    match event:
        case Composed():
            yield from (
                (leaf, count * times)
                for part, times in event.parts
                for leaf, count in _counted(part)
            )
        case SampledGaussian():
            yield replace(event, steps=1), event.steps
        case Thresholded():
            yield event.counts, 1
        case Bounded():
            yield replace(event, delta=Fraction(0)), 1
        case Parallel():
            raise UnsupportedEvent("Events on disjoint parts have no single list of simple events.")
        case _:
            yield event, 1
