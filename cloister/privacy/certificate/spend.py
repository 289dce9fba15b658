"""What a release did to the data and what it cost, for its certificate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from cloister.errors import UnsupportedEvent
from cloister.figures import count_of, figure, figure_above, percent
from cloister.privacy.accounting.accountants import readings, spend
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.certificate.schema import AccountedCost, MechanismRecord, StageSpend
from cloister.privacy.events import (
    Bounded,
    Composed,
    Event,
    GaussianCounts,
    LaplaceCounts,
    OnGrid,
    Parallel,
    PlausiblyDeniable,
    Relation,
    SampledGaussian,
    SeededRecords,
    Selection,
    Thresholded,
)
from cloister.privacy.stages import PlannedStage, accountable, event_of_stages

_FREE_BEFORE = (
    "sequence and search",
    "order of the attributes and all parameters, from public declarations alone",
)
_FREE_AFTER = ("sampling", "rows drawn from the released model: post-processing, {many}")

NOT_COUNTED = "plausible deniability: not counted in any epsilon"

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
    SeededRecords: (
        "plausible deniability with a randomised threshold",
        "threshold noise exact, on integers (OpenDP); seeds and records from AES-256",
        "Bindschaedler, Shokri, Gunter, VLDB 2017; docs/privacy.md",
    ),
    PlausiblyDeniable: (
        "plausible deniability alone: NOT differential privacy of the table",
        "threshold noise, if any, exact (OpenDP); seeds and records from AES-256",
        "Bindschaedler, Shokri, Gunter, VLDB 2017, definition 1",
    ),
    Bounded: (
        "mechanism with a privacy argument of its own",
        "see docs/privacy.md",
        "docs/privacy.md",
    ),
}


def accounted_cost(
    stages: Sequence[PlannedStage], delta: Fraction, relation: Relation | str
) -> AccountedCost:
    """What all stages cost together, but for those of plausible deniability alone.

    Raises:
        UnsupportedEvent: no accountant reads them.
    """
    total = spend(_accounted(stages), delta, relation)
    return AccountedCost(epsilon=total.epsilon, accountant=total.accountant)


def second_cost(
    stages: Sequence[PlannedStage], delta: Fraction, relation: Relation | str
) -> AccountedCost | None:
    """The least answer of any accountant but that of `accounted_cost`; None if no other has one."""
    first = accounted_cost(stages, delta, relation)
    others = readings(_accounted(stages), delta, relation)
    others.pop(first.accountant, None)
    if not others:
        return None
    least = min(others, key=lambda name: others[name])
    return AccountedCost(epsilon=others[least], accountant=least)


def stage_spends(
    stages: Sequence[PlannedStage],
    delta: Fraction,
    relation: Relation | str,
    capacity: int | None = None,
) -> tuple[StageSpend, ...]:
    """Each stage with its cost alone, between the two stages that cost nothing."""
    spends = [_free(*_FREE_BEFORE)]
    spends += [_stage_spend(stage, delta, relation) for stage in stages]
    many = "any number of them" if capacity is None else f"at most {capacity:,} of them"
    return (*spends, _free(_FREE_AFTER[0], _FREE_AFTER[1].format(many=many)))


def _stage_spend(stage: PlannedStage, delta: Fraction, relation: Relation | str) -> StageSpend:
    counted = not isinstance(stage.event, PlausiblyDeniable)
    cost = spend(stage.event, delta, relation) if counted else None
    return StageSpend(
        name=stage.name,
        purpose=stage.explanation,
        done=describe(stage.event),
        epsilon=cost.epsilon if cost else None,
        accountant=cost.accountant if cost else NOT_COUNTED,
        event=stage.event.to_json(),
    )


def describe(event: Event) -> str:
    """What was done to the data, in words; noise in rows, or in multiples of the clipping norm."""
    if isinstance(event, Composed):
        return _describe_all(event)
    if isinstance(event, Parallel):
        return f"on disjoint parts of the rows: {'; '.join(describe(part) for part in event.parts)}"
    if isinstance(event, Thresholded):
        return f"{describe(event.counts)} of non-empty cells, small ones withheld"
    return _describe_simple(event)


def _describe_all(event: Composed) -> str:
    """Every part in words, once with the number of its times."""
    times: Counter[str] = Counter()
    for part, number in event.parts:
        times[describe(part)] += number
    return "; ".join(
        f"{number} times: {words}" if number > 1 else words for words, number in times.items()
    )


def _describe_simple(event: Event) -> str:
    match event:
        case GaussianCounts():
            return (
                f"discrete Gaussian noise of scale {count_of(figure(_scale(event), 4), 'row')} on "
                "counts"
            )
        case LaplaceCounts():
            scale = float(event.sensitivity.l1 / event.epsilon)
            return f"discrete Laplace noise of scale {count_of(figure(scale, 4), 'row')} on counts"
        case SampledGaussian():
            noise = figure(float(event.noise_multiplier), 4)
            return (
                f"{count_of(event.steps, 'step')} of DP-SGD on {percent(100 * float(event.rate))} "
                f"of the rows, drawn anew, with noise of {noise} times the clipping norm"
            )
        case Selection():
            epsilon = figure_above(float(event.epsilon), 4)
            return f"a choice by the exponential mechanism at epsilon {epsilon}"
        case Bounded():
            epsilon = figure_above(float(event.epsilon), 4)
            return f"a mechanism shown to be ({epsilon}, {exact_text(event.delta)})-private"
        case OnGrid() | SeededRecords() | PlausiblyDeniable():
            return _describe_rarer(event)
    raise UnsupportedEvent(f"No words are known for a {type(event).__name__} event.")


def _describe_rarer(event: OnGrid | SeededRecords | PlausiblyDeniable) -> str:
    match event:
        case OnGrid():
            words = _describe_simple(event.noise).replace(" rows on counts", " steps on numbers")
            most = event.noise.sensitivity.step
            return f"{words} of a grid; one unit moves a number by at most {count_of(most, 'step')}"
        case SeededRecords():
            scale = figure(float(1 / event.epsilon0), 4)
            return (
                f"{event.candidates:,} records, each released if {count_of(event.k, 'row')} or "
                f"more, give or take noise of scale {scale}, could have made it"
            )
    return (
        f"{event.candidates:,} records, each released if about {count_of(event.k, 'row')} could "
        "have made it: plausible deniability, NOT differential privacy"
    )


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


def _accounted(stages: Sequence[PlannedStage]) -> Composed:
    return event_of_stages(accountable(stages))


def _scale(event: GaussianCounts) -> float:
    return float(event.noise_multiplier) * math.sqrt(event.sensitivity.l2_squared)


def _simple(event: Event) -> Iterator[Event]:
    if isinstance(event, Composed):
        for part, _ in event.parts:
            yield from _simple(part)
    elif isinstance(event, Parallel):
        for part in event.parts:
            yield from _simple(part)
    elif isinstance(event, OnGrid):
        yield event.noise
    else:
        yield event
