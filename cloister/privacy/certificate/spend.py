"""What a release did to the data and what it cost, for its certificate.

The guarantees of records made from seeds are each under a name of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from cloister.errors import UnsupportedEvent
from cloister.figures import count_of, figure, figure_above, percent
from cloister.privacy.accounting.accountants import readings, spend
from cloister.privacy.accounting.composition import (
    PlannedStage,
    accountable,
    best_record_guarantee,
    event_of_stages,
    row_steps,
)
from cloister.privacy.certificate.certificate import (
    AccountedCost,
    MechanismRecord,
    RecordBound,
    RecordGuarantees,
    StageSpend,
)
from cloister.privacy.certificate.provenance import exact_text
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
    RepeatedSelection,
    SampledGaussian,
    SeededRecords,
    Selection,
    Thresholded,
)

DENIABLE_DEFINITION = (
    "plausible deniability of each released record; this is NOT differential privacy of the table. "
    "Epsilon and delta are of the network that made the records, and of the rows it was learned "
    "from, alone"
)

_INSIDE = (
    "A record was released only if at least {k:,} of the rows that may be seeds{units}{noise} "
    "could have made it with probabilities that differ by a factor of at most {gamma}."
)
_UNITS = ", which belong to {units:,} privacy units or more,"
_NOISE = ", give or take the noise of the threshold,"
_COPIED = (
    "A record may keep values of one row, its seed: whoever knows that row may recognise them, but "
    "cannot say that this row, and none of the others, was the seed."
)
_ALONE = (
    "One released record, seen alone, is (epsilon {epsilon}, delta {delta})-private (Theorem 1 at "
    "t = {t}); this adds up over records."
)
_TOGETHER = (
    "All {candidates:,} candidates, those that were not released as well, are together (epsilon "
    "{epsilon}, delta {delta})-private."
)
_NOTHING = "No epsilon bounds what all {candidates:,} candidates together reveal of a row."
_NOT_DP = (
    "This release is NOT differentially private: the epsilon charged is that of the network alone, "
    "and protects the rows that it was learned from. Any row may be a seed instead, and a seed is "
    "protected by plausible deniability only."
)


def record_guarantees(
    event: Event, delta: Fraction, relation: Relation | str
) -> RecordGuarantees | None:
    """Of one record, of all, and of the network, each at ``delta``; None if none has a seed.

    ``event`` is all that a release does.
    """
    records = next(iter(_records_in(event)), None)
    if records is None:
        return None
    deniable = isinstance(records, PlausiblyDeniable)
    bounded = records.bounded if isinstance(records, PlausiblyDeniable) else records
    return RecordGuarantees(
        guarantee="plausible-deniability" if deniable else "differential-privacy",
        k=records.k,
        k_units=-(-records.k // records.rows),
        gamma=exact_text(records.gamma),
        candidates=records.candidates,
        one_record=_one(bounded, delta, Relation(relation)),
        all_candidates=_bound(bounded, delta, relation),
        network=_bound(_without_records(event), delta, relation),
    )


def _one(event: SeededRecords | None, delta: Fraction, relation: Relation) -> RecordBound | None:
    """Theorem 1 for one released record, of a whole privacy unit."""
    if event is None:
        return None
    steps = row_steps(event.rows, relation)
    best = best_record_guarantee(event.k, event.gamma, event.epsilon0, float(delta), steps)
    return RecordBound(epsilon=best.epsilon, delta=best.delta, t=best.t)


def _records_in(event: Event) -> Iterator[SeededRecords | PlausiblyDeniable]:
    match event:
        case SeededRecords() | PlausiblyDeniable():
            yield event
        case Composed():
            for part, _ in event.parts:
                yield from _records_in(part)
        case Parallel():
            for part in event.parts:
                yield from _records_in(part)


def _without_records(event: Event) -> Event:
    """The event without its records."""
    match event:
        case SeededRecords() | PlausiblyDeniable():
            return Composed(())
        case Composed():
            return Composed(tuple((_without_records(part), n) for part, n in event.parts))
        case Parallel():
            return Parallel(tuple(map(_without_records, event.parts)), event.rows)
    return event


def deniable_meaning(records: RecordGuarantees) -> tuple[str, ...]:
    """What plausible deniability promises, and what it does not, in sentences."""
    return (_NOT_DP, *record_words(records))


def record_words(records: RecordGuarantees) -> tuple[str, ...]:
    """The guarantees of the records, in sentences."""
    one, every = records.one_record, records.all_candidates
    noise = _NOISE if one else ""
    several = records.k_units < records.k
    units = _UNITS.format(units=records.k_units) if several else ""
    inside = _INSIDE.format(k=records.k, units=units, noise=noise, gamma=records.gamma)
    alone = (_ALONE.format(**_terms(one), t=one.t),) if one else ()
    together = (
        _TOGETHER.format(candidates=records.candidates, **_terms(every))
        if every
        else _NOTHING.format(candidates=records.candidates)
    )
    return (inside, _COPIED, *alone, together)


def _terms(bound: RecordBound) -> dict[str, str]:
    return {"epsilon": figure_above(bound.epsilon, 4), "delta": figure_above(bound.delta, 2)}


def _bound(event: Event | None, delta: Fraction, relation: Relation | str) -> RecordBound | None:
    """What an event costs at ``delta``; None if nothing bounds it."""
    if event is None:
        return None
    try:
        cost = spend(event, delta, relation)
    except UnsupportedEvent:
        return None
    return RecordBound(epsilon=cost.epsilon, delta=float(delta))


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
    RepeatedSelection: (
        "private selection of one of several tries, among a secret number of the first",
        "number of tries from AES-256",
        "Liu, Talwar, arXiv 1811.07971; Papernot, Steinke, arXiv 2110.03620; docs/privacy.md",
    ),
    Bounded: (
        "mechanism with a privacy argument of its own",
        "see docs/privacy.md",
        "docs/privacy.md",
    ),
}


def accounted_cost(
    stages: Sequence[PlannedStage], delta: Fraction, relation: Relation | str, group: int = 1
) -> AccountedCost:
    """What all stages cost together, but for those of plausible deniability alone.

    ``group`` is how many rows the unit that is charged has, of those that the stages protect.

    Raises:
        UnsupportedEvent: no accountant reads them.
    """
    total = spend(_accounted(stages), delta, relation)
    return _of_group(total.epsilon, total.accountant, group)


def second_cost(
    stages: Sequence[PlannedStage], delta: Fraction, relation: Relation | str, group: int = 1
) -> AccountedCost | None:
    """The least answer of any accountant but that of `accounted_cost`; None if no other has one."""
    first = accounted_cost(stages, delta, relation)
    others = readings(_accounted(stages), delta, relation)
    others.pop(first.accountant, None)
    if not others:
        return None
    least = min(others, key=lambda name: others[name])
    return _of_group(others[least], least, group)


def _of_group(epsilon: float, accountant: str, rows: int) -> AccountedCost:
    if rows == 1:
        return AccountedCost(epsilon=epsilon, accountant=accountant)
    named = f"{accountant}, and group privacy of {rows:,} rows"
    return AccountedCost(epsilon=rows * epsilon, accountant=named)


def stage_spends(
    stages: Sequence[PlannedStage],
    delta: Fraction,
    relation: Relation | str,
    capacity: int | None = None,
    group: int = 1,
) -> tuple[StageSpend, ...]:
    """Each stage with its cost alone, between the two stages that cost nothing."""
    spends = [_free(*_FREE_BEFORE)]
    spends += [_stage_spend(stage, delta, relation, group) for stage in stages]
    many = "any number of them" if capacity is None else f"at most {capacity:,} of them"
    return (*spends, _free(_FREE_AFTER[0], _FREE_AFTER[1].format(many=many)))


def _stage_spend(
    stage: PlannedStage, delta: Fraction, relation: Relation | str, group: int
) -> StageSpend:
    counted = not isinstance(stage.event, PlausiblyDeniable)
    alone = spend(stage.event, delta, relation) if counted else None
    cost = _of_group(alone.epsilon, alone.accountant, group) if alone else None
    return StageSpend(
        name=stage.name,
        purpose=stage.explanation,
        done=describe(stage.event),
        epsilon=cost.epsilon if cost else None,
        accountant=cost.accountant if cost else NOT_COUNTED,
        event=stage.event.to_json(),
    )


_NOISE_ON_COUNTS: Mapping[type[Event], str] = {
    GaussianCounts: "discrete Gaussian noise of scale {scale} on counts",
    LaplaceCounts: "discrete Laplace noise of scale {scale} on counts",
}


def describe(event: Event) -> str:
    """What was done to the data, in words; noise in rows, or in multiples of the clipping norm."""
    if isinstance(event, Composed):
        return _describe_all(event)
    if isinstance(event, Parallel):
        return f"on disjoint parts of the rows: {'; '.join(describe(part) for part in event.parts)}"
    if isinstance(event, RepeatedSelection):
        tries = count_of(event.most, "try", "tries")
        return f"{tries}, of which one is delivered, each: {describe(event.base)}"
    if isinstance(event, Thresholded):
        return f"{describe(event.counts)} of non-empty cells, small ones withheld"
    return _describe_simple(event)


def _describe_all(event: Composed) -> str:
    """Every kind of part once, with the number of queries; noise on counts from least to most."""
    numbers: Counter[str] = Counter()
    scales: dict[str, list[float]] = {}
    for part, number in event.parts:
        words = describe(part)
        if isinstance(part, GaussianCounts | LaplaceCounts):
            words = _NOISE_ON_COUNTS[type(part)]
            scales.setdefault(words, []).append(_scale(part))
        numbers[words] += number
    return "; ".join(
        ("" if number == 1 else f"{number:,} queries, each: ")
        + (words.format(scale=_scale_words(scales[words])) if words in scales else words)
        for words, number in numbers.items()
    )


def _scale(event: GaussianCounts | LaplaceCounts) -> float:
    """The scale of noise on counts, in rows."""
    if isinstance(event, GaussianCounts):
        return float(event.noise_multiplier) * math.sqrt(event.sensitivity.l2_squared)
    return float(event.sensitivity.l1 / event.epsilon)


def _scale_words(scales: Sequence[float]) -> str:
    ends = dict.fromkeys(figure(end, 4) for end in (min(scales), max(scales)))
    *least, most = ends
    return " to ".join((*least, count_of(most, "row")))


def _describe_simple(event: Event) -> str:
    match event:
        case GaussianCounts() | LaplaceCounts():
            return _NOISE_ON_COUNTS[type(event)].format(scale=_scale_words([_scale(event)]))
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
    done = "the data is not read"
    return StageSpend(name=name, purpose=purpose, done=done, epsilon=0.0, accountant="", event=None)


def _accounted(stages: Sequence[PlannedStage]) -> Composed:
    return event_of_stages(accountable(stages))


def _simple(event: Event) -> Iterator[Event]:
    if isinstance(event, Composed):
        for part, _ in event.parts:
            yield from _simple(part)
    elif isinstance(event, Parallel):
        for part in event.parts:
            yield from _simple(part)
    elif isinstance(event, RepeatedSelection):
        yield event
        yield from _simple(event.base)
    elif isinstance(event, OnGrid):
        yield event.noise
    else:
        yield event
