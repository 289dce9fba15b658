"""The guarantees of records made from seeds, each under its own name."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from cloister.errors import UnsupportedEvent
from cloister.figures import figure_above
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.accounting.deniability import best_record_guarantee, row_steps
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.certificate.schema import RecordBound, RecordGuarantees
from cloister.privacy.events import (
    Composed,
    Event,
    Parallel,
    PlausiblyDeniable,
    Relation,
    SeededRecords,
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
