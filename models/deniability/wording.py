"""Certificate wording for records made from seeds: each guarantee under its own name.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), definition 1 and theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from cloister.errors import UnsupportedEvent
from cloister.figures import figure_above
from cloister.models.deniability.seeding import PLAUSIBLE_DENIABILITY
from cloister.privacy import events
from cloister.privacy.accounting import composition
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.certificate import certificate
from cloister.privacy.certificate.provenance import exact_text
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY

_DEFINITION = (
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


def own_guarantees(
    event: events.Event, delta: Fraction, relation: events.Relation | str
) -> certificate.OwnGuarantees:
    """A certificate's words on records made from seeds; empty without such records."""
    records = record_guarantees(event, delta, relation)
    if records is None:
        return certificate.OwnGuarantees()
    if records.guarantee == DIFFERENTIAL_PRIVACY:
        return certificate.OwnGuarantees(records, None, record_words(records))
    return certificate.OwnGuarantees(records, _DEFINITION, (_NOT_DP, *record_words(records)))


def record_guarantees(
    event: events.Event, delta: Fraction, relation: events.Relation | str
) -> certificate.RecordGuarantees | None:
    """Of one record, of all, and of the network, each at ``delta``; None if none has a seed.

    ``event`` is all that a release does.
    """
    records = next(iter(_records_in(event)), None)
    if records is None:
        return None
    deniable = isinstance(records, events.UncountedRecords)
    bounded = records.bounded if isinstance(records, events.UncountedRecords) else records
    return certificate.RecordGuarantees(
        guarantee=PLAUSIBLE_DENIABILITY if deniable else DIFFERENTIAL_PRIVACY,
        k=records.k,
        k_units=-(-records.k // records.rows),
        gamma=exact_text(records.gamma),
        candidates=records.candidates,
        one_record=_one(bounded, delta, events.Relation(relation)),
        all_candidates=_bound(bounded, delta, relation),
        network=_bound(_without_records(event), delta, relation),
    )


def _one(
    event: events.SeededRecords | None, delta: Fraction, relation: events.Relation
) -> certificate.RecordBound | None:
    """Theorem 1 for one released record, of a whole privacy unit."""
    if event is None:
        return None
    steps = composition.row_steps(event.rows, relation)
    best = composition.best_record_guarantee(
        event.k, event.gamma, event.epsilon0, float(delta), steps
    )
    return certificate.RecordBound(epsilon=best.epsilon, delta=best.delta, t=best.t)


def _records_in(event: events.Event) -> Iterator[events.SeededRecords | events.UncountedRecords]:
    match event:
        case events.SeededRecords() | events.UncountedRecords():
            yield event
        case events.Composed():
            for part, _ in event.parts:
                yield from _records_in(part)
        case events.Parallel():
            for part in event.parts:
                yield from _records_in(part)


def _without_records(event: events.Event) -> events.Event:
    """The event without its records."""
    match event:
        case events.SeededRecords() | events.UncountedRecords():
            return events.Composed(())
        case events.Composed():
            return events.Composed(tuple((_without_records(part), n) for part, n in event.parts))
        case events.Parallel():
            return events.Parallel(tuple(map(_without_records, event.parts)), event.rows)
    return event


def record_words(records: certificate.RecordGuarantees) -> tuple[str, ...]:
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


def _terms(bound: certificate.RecordBound) -> dict[str, str]:
    return {"epsilon": figure_above(bound.epsilon, 4), "delta": figure_above(bound.delta, 2)}


def _bound(
    event: events.Event | None, delta: Fraction, relation: events.Relation | str
) -> certificate.RecordBound | None:
    """What an event costs at ``delta``; None if nothing bounds it."""
    if event is None:
        return None
    try:
        cost = spend(event, delta, relation)
    except UnsupportedEvent:
        return None
    return certificate.RecordBound(epsilon=cost.epsilon, delta=float(delta))
