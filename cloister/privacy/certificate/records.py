"""The guarantees of records made from seeds, each under its own name."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from cloister.errors import UnsupportedEvent
from cloister.figures import figure
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.accounting.deniability import best_record_guarantee
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.certificate.schema import RecordBound, RecordGuarantees
from cloister.privacy.events import Event, PlausiblyDeniable, Relation, SeededRecords
from cloister.privacy.stages import PlannedStage, accountable, event_of_stages

DENIABLE_DEFINITION = (
    "plausible deniability of each released record; this is NOT differential privacy of the table. "
    "Epsilon and delta are of the network that made the records, and of the rows it was learned "
    "from, alone"
)

_INSIDE = (
    "A record was released only if at least {k:,} of the rows that may be seeds{noise} could have "
    "made it with probabilities that differ by a factor of at most {gamma}."
)
_NOISE = ", give or take the noise of the threshold,"
_COPIED = (
    "A record keeps values of one row, its seed: whoever knows that row may recognise them, but "
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
    stages: Sequence[PlannedStage], delta: Fraction, relation: Relation | str
) -> RecordGuarantees | None:
    """Of one record, of all, and of the network, each at ``delta``; None if none has a seed."""
    found = (stage.event for stage in stages)
    event = next((e for e in found if isinstance(e, SeededRecords | PlausiblyDeniable)), None)
    if event is None:
        return None
    deniable = isinstance(event, PlausiblyDeniable)
    bounded = event.bounded if isinstance(event, PlausiblyDeniable) else event
    network = [s for s in accountable(stages) if not isinstance(s.event, SeededRecords)]
    one = None
    if bounded is not None:
        best = best_record_guarantee(bounded.k, bounded.gamma, bounded.epsilon0, float(delta))
        one = RecordBound(epsilon=best.epsilon, delta=best.delta, t=best.t)
    return RecordGuarantees(
        guarantee="plausible-deniability" if deniable else "differential-privacy",
        k=event.k,
        gamma=exact_text(event.gamma),
        candidates=event.candidates,
        one_record=one,
        all_candidates=_bound(bounded, delta, relation),
        network=_bound(event_of_stages(network), delta, relation),
    )


def deniable_meaning(records: RecordGuarantees) -> tuple[str, ...]:
    """What plausible deniability promises, and what it does not, in sentences."""
    return (_NOT_DP, *record_words(records))


def record_words(records: RecordGuarantees) -> tuple[str, ...]:
    """The guarantees of the records, in sentences."""
    one, every = records.one_record, records.all_candidates
    noise = _NOISE if one else ""
    inside = _INSIDE.format(k=records.k, noise=noise, gamma=records.gamma)
    alone = (_ALONE.format(**_terms(one), t=one.t),) if one else ()
    together = (
        _TOGETHER.format(candidates=records.candidates, **_terms(every))
        if every
        else _NOTHING.format(candidates=records.candidates)
    )
    return (inside, _COPIED, *alone, together)


def _terms(bound: RecordBound) -> dict[str, str]:
    return {"epsilon": figure(bound.epsilon, 4), "delta": figure(bound.delta, 2)}


def _bound(event: Event | None, delta: Fraction, relation: Relation | str) -> RecordBound | None:
    """What an event costs at ``delta``; None if nothing bounds it."""
    if event is None:
        return None
    try:
        cost = spend(event, delta, relation)
    except UnsupportedEvent:
        return None
    return RecordBound(epsilon=cost.epsilon, delta=float(delta))
