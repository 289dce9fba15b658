"""What a release did to the data and what it cost, for its certificate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from cloister.errors import UnsupportedEvent
from cloister.figures import count_of, figure, figure_above, percent
from cloister.privacy import events
from cloister.privacy.accounting import composition
from cloister.privacy.accounting.accountants import readings, spend
from cloister.privacy.certificate import certificate
from cloister.privacy.certificate.provenance import exact_text

_FREE_BEFORE = (
    "sequence and search",
    "order of the attributes and all parameters, from public declarations alone",
)
_FREE_AFTER = ("sampling", "rows drawn from the released model: post-processing, {many}")

NOT_COUNTED = "not differentially private: not counted in any epsilon"

_SOURCES: dict[type[events.Event], tuple[str, str, str]] = {
    events.GaussianCounts: (
        "discrete Gaussian noise on integer counts",
        "exact, on integers (OpenDP)",
        "Canonne, Kamath, Steinke, arXiv 2004.00010",
    ),
    events.LaplaceCounts: (
        "discrete Laplace noise on integer counts",
        "exact, on integers (OpenDP)",
        "Ghosh, Roughgarden, Sundararajan, 2009",
    ),
    events.Thresholded: (
        "noisy counts of non-empty cells, those under a public threshold withheld",
        "exact, on integers (OpenDP)",
        "Korolova et al., 2009; Wilson et al., arXiv 1909.01917",
    ),
    events.Selection: ("exponential mechanism", "exact", "McSherry, Talwar, 2007"),
    events.SampledGaussian: (
        "DP-SGD: Poisson-sampled, clipped gradients with normal noise",
        "normal numbers of four draws, rounded to a grid",
        "Abadi et al., arXiv 1607.00133",
    ),
    events.SeededRecords: (
        "records made from seeds, released by a test with a noisy threshold",
        "threshold noise exact, on integers (OpenDP); seeds and records from AES-256",
        "Bindschaedler, Shokri, Gunter, VLDB 2017; docs/privacy.md",
    ),
    events.UncountedRecords: (
        "records made from seeds, released by a test: NOT differential privacy of the table",
        "threshold noise, if any, exact (OpenDP); seeds and records from AES-256",
        "Bindschaedler, Shokri, Gunter, VLDB 2017, definition 1",
    ),
    events.RepeatedSelection: (
        "private selection of one of several tries, among a secret number of the first",
        "number of tries from AES-256",
        "Liu, Talwar, arXiv 1811.07971; Papernot, Steinke, arXiv 2110.03620; docs/privacy.md",
    ),
    events.Bounded: (
        "mechanism with a privacy argument of its own",
        "see docs/privacy.md",
        "docs/privacy.md",
    ),
}


def accounted_cost(
    stages: Sequence[composition.PlannedStage],
    delta: Fraction,
    relation: events.Relation | str,
    group: int = 1,
) -> certificate.AccountedCost:
    """The cost of all stages together, except those that are not differentially private.

    ``group`` is how many rows the unit that is charged has, of those that the stages protect.

    Raises:
        UnsupportedEvent: no accountant reads them.
    """
    total = spend(_accounted(stages), delta, relation)
    return _of_group(total.epsilon, total.accountant, group)


def second_cost(
    stages: Sequence[composition.PlannedStage],
    delta: Fraction,
    relation: events.Relation | str,
    group: int = 1,
) -> certificate.AccountedCost | None:
    """The least answer of any accountant but that of `accounted_cost`; None without another."""
    first = accounted_cost(stages, delta, relation)
    alternatives = readings(_accounted(stages), delta, relation)
    alternatives.pop(first.accountant, None)
    if not alternatives:
        return None
    least = min(alternatives, key=lambda name: alternatives[name])
    return _of_group(alternatives[least], least, group)


def _of_group(epsilon: float, accountant: str, rows: int) -> certificate.AccountedCost:
    if rows == 1:
        return certificate.AccountedCost(epsilon=epsilon, accountant=accountant)
    named = f"{accountant}, and group privacy of {rows:,} rows"
    return certificate.AccountedCost(epsilon=rows * epsilon, accountant=named)


def stage_spends(
    stages: Sequence[composition.PlannedStage],
    delta: Fraction,
    relation: events.Relation | str,
    capacity: int | None = None,
    group: int = 1,
) -> tuple[certificate.StageSpend, ...]:
    """Each stage with its cost alone, between the two stages that cost nothing."""
    spends = [_free(*_FREE_BEFORE)]
    spends += [_stage_spend(stage, delta, relation, group) for stage in stages]
    many = "any number of them" if capacity is None else f"at most {capacity:,} of them"
    return (*spends, _free(_FREE_AFTER[0], _FREE_AFTER[1].format(many=many)))


def _stage_spend(
    stage: composition.PlannedStage, delta: Fraction, relation: events.Relation | str, group: int
) -> certificate.StageSpend:
    alone = spend(stage.event, delta, relation) if stage.event.counted else None
    cost = _of_group(alone.epsilon, alone.accountant, group) if alone else None
    return certificate.StageSpend(
        name=stage.name,
        purpose=stage.explanation,
        done=describe(stage.event),
        epsilon=cost.epsilon if cost else None,
        accountant=cost.accountant if cost else NOT_COUNTED,
        event=stage.event.to_json(),
    )


_NOISE_ON_COUNTS: Mapping[type[events.Event], str] = {
    events.GaussianCounts: "discrete Gaussian noise of scale {scale} on counts",
    events.LaplaceCounts: "discrete Laplace noise of scale {scale} on counts",
}


def describe(event: events.Event) -> str:
    """An event in words; noise in rows, or in multiples of the clipping norm."""
    if isinstance(event, events.Composed):
        return _describe_all(event)
    if isinstance(event, events.Parallel):
        return f"on disjoint parts of the rows: {'; '.join(describe(part) for part in event.parts)}"
    if isinstance(event, events.RepeatedSelection):
        tries = count_of(event.most, "try", "tries")
        return f"{tries}, of which one is delivered, each: {describe(event.base)}"
    if isinstance(event, events.Thresholded):
        return f"{describe(event.counts)} of non-empty cells, small ones withheld"
    return _describe_simple(event)


def _describe_all(event: events.Composed) -> str:
    """Every kind of part once, with the number of queries; noise on counts from least to most."""
    numbers: Counter[str] = Counter()
    scales: dict[str, list[float]] = {}
    for part, number in event.parts:
        words = describe(part)
        if isinstance(part, events.GaussianCounts | events.LaplaceCounts):
            words = _NOISE_ON_COUNTS[type(part)]
            scales.setdefault(words, []).append(_scale(part))
        numbers[words] += number
    return "; ".join(
        ("" if number == 1 else f"{number:,} queries, each: ")
        + (words.format(scale=_scale_words(scales[words])) if words in scales else words)
        for words, number in numbers.items()
    )


def _scale(event: events.GaussianCounts | events.LaplaceCounts) -> float:
    """The scale of noise on counts, in rows."""
    if isinstance(event, events.GaussianCounts):
        return float(event.noise_multiplier) * math.sqrt(event.sensitivity.l2_squared)
    return float(event.sensitivity.l1 / event.epsilon)


def _scale_words(scales: Sequence[float]) -> str:
    ends = dict.fromkeys(figure(end, 4) for end in (min(scales), max(scales)))
    *least, most = ends
    return " to ".join((*least, count_of(most, "row")))


def _describe_simple(event: events.Event) -> str:
    match event:
        case events.GaussianCounts() | events.LaplaceCounts():
            return _NOISE_ON_COUNTS[type(event)].format(scale=_scale_words([_scale(event)]))
        case events.SampledGaussian():
            noise = figure(float(event.noise_multiplier), 4)
            return (
                f"{count_of(event.steps, 'step')} of DP-SGD on {percent(100 * float(event.rate))} "
                f"of the rows, drawn anew, with noise of {noise} times the clipping norm"
            )
        case events.Selection():
            epsilon = figure_above(float(event.epsilon), 4)
            return f"a choice by the exponential mechanism at epsilon {epsilon}"
        case events.Bounded():
            epsilon = figure_above(float(event.epsilon), 4)
            return f"a mechanism shown to be ({epsilon}, {exact_text(event.delta)})-private"
        case events.OnGrid() | events.SeededRecords() | events.UncountedRecords():
            return _describe_rarer(event)
    raise UnsupportedEvent(f"No words are known for a {type(event).__name__} event.")


def _describe_rarer(event: events.OnGrid | events.SeededRecords | events.UncountedRecords) -> str:
    match event:
        case events.OnGrid():
            words = _describe_simple(event.noise).replace(" rows on counts", " steps on numbers")
            most = event.noise.sensitivity.step
            return f"{words} of a grid; one unit moves a number by at most {count_of(most, 'step')}"
        case events.SeededRecords():
            scale = figure(float(1 / event.epsilon0), 4)
            return (
                f"{event.candidates:,} records, each released if {count_of(event.k, 'row')} or "
                f"more, give or take noise of scale {scale}, could have made it"
            )
    return (
        f"{event.candidates:,} records, each released if about {count_of(event.k, 'row')} could "
        "have made it: NOT differential privacy"
    )


def kinds(stages: Sequence[composition.PlannedStage]) -> list[type[events.Event]]:
    """The kinds of simple events in the stages, in the order of the table above."""
    present = {type(leaf) for stage in stages for leaf in _simple(stage.event)}
    return [kind for kind in _SOURCES if kind in present]


def mechanisms(
    stages: Sequence[composition.PlannedStage], secure: bool
) -> tuple[certificate.MechanismRecord, ...]:
    """The mechanisms of the stages, with their samplers; those of a test are stand-ins."""
    rows = [_SOURCES[kind] for kind in kinds(stages)]
    stand_in = "REPEATABLE STAND-IN FOR TESTS: not private"
    return tuple(
        certificate.MechanismRecord(
            name=name, sampler=sampler if secure else stand_in, source=source
        )
        for name, sampler, source in rows
    )


def _free(name: str, purpose: str) -> certificate.StageSpend:
    done = "the data is not read"
    return certificate.StageSpend(
        name=name, purpose=purpose, done=done, epsilon=0.0, accountant="", event=None
    )


def _accounted(stages: Sequence[composition.PlannedStage]) -> events.Composed:
    return composition.event_of_stages(composition.accountable(stages))


def _simple(event: events.Event) -> Iterator[events.Event]:
    if isinstance(event, events.Composed):
        for part, _ in event.parts:
            yield from _simple(part)
    elif isinstance(event, events.Parallel):
        for part in event.parts:
            yield from _simple(part)
    elif isinstance(event, events.RepeatedSelection):
        yield event
        yield from _simple(event.base)
    elif isinstance(event, events.OnGrid):
        yield event.noise
    else:
        yield event
