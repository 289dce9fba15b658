"""What a guarantee means, in words and odds, for those who decide on a release."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from cloister.figures import count_of, figure_above
from cloister.privacy import events
from cloister.privacy.accounting.composition import PlannedStage
from cloister.privacy.accounting.loss import LARGEST_EXPONENT
from cloister.privacy.certificate.certificate import Detection, Odds, ReusedRelease
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.certificate.spend import kinds
from cloister.privacy.certificate.unit_words import unit_words
from cloister.privacy.ledger.accounts import ReadingMove
from cloister.schema.attributes import MEASURED
from cloister.schema.spec import PersonUnit, RowsSpec, Spec

_DEFINITION = (
    "approximate differential privacy, (epsilon, delta); central model: one curator holds the data"
)
_PURE_DEFINITION = (
    "pure differential privacy, epsilon alone; central model: one curator holds the data"
)
_PRIORS = (0.01, 0.10, 0.50, 0.90)
"""Certainties of a guess before a release; a certificate shows what they can become."""

_FALSE_ALARMS = (0.01, 0.05, 0.10)
"""Shares of false alarms for which a certificate bounds the power of any attack."""

_LARGEST_EXPONENT = 20
"""Greatest epsilon whose factor, 485 million, is written out; greater ones as a power of ten."""

_CHANGE = (
    "Whether one {noun} {case} changes the probability of any outcome of this release by a factor "
    "of at most {factor}{apart}."
)
_CERTAINTY = (
    "Someone who knew everything about the data but this one {noun}, and thought either case as "
    "likely as the other, is right about it with a probability of at most {certainty} after seeing "
    "the release."
)
_ANYONE = "This holds for any attacker, whatever else they know or learn later. {further}"
_ANY_NUMBER = "Further rows drawn from the model cost nothing."
_NO_MORE = (
    "The model gives at most {capacity} rows in all, which are paid for; it never gives more."
)
_GROUPS = (
    "It does not hide facts about groups: what the release shows of a group, it shows whether or "
    "not any one {noun} took part."
)

_REUSED = (
    "The rows also depend on noisy numbers of previous releases: {releases}. The guarantee above "
    "covers all of them together; this release was charged epsilon {epsilon}, delta {delta}, and "
    "each of the others its own when it was made."
)

_OF_GROUP = (
    "The noise is planned for one row, at epsilon {epsilon}, delta {delta}: this is the guarantee "
    "of a single row of a person with at most {rows} rows. What is charged and said above of a "
    "person follows from it by group privacy, for {rows} rows. If a person has more, another row "
    "takes the place of one that is removed: two steps."
)

_OF_BLOCKS = (
    "Only rows whose {column} lies in {blocks} were read, and each {per} has a budget of its own. "
    "{whose}"
)
_READ_OTHERWISE = (
    "Before the account was moved to this reading, a row may have been in another {per}."
)
_MOVED = (
    "On {date} the account was moved to another reading of its data ({reason}). Budgets do not "
    "bound what releases before and after that reveal together of one unit."
)
_ROWS_OF_BLOCKS = " The number of rows was declared for each {per}, and multiplied by their number."

_EXACT_COUNTS = (
    "noise on counts is drawn exactly, on integers, from randomness of the operating system; no "
    "floating-point number is added to a count"
)
_SECURE_GRADIENTS = (
    "gradient noise and Poisson samples come from AES-256 in counter mode under a fresh key of the "
    "operating system; the key is never stored or copied"
)
_ROUNDED_GRADIENTS = (
    "gradient sums and their noise are rounded to a fixed grid, and each normal number combines "
    "four draws, so that the bits of a floating-point number reveal nothing"
)
_SECURE_SEEDS = (
    "seeds are drawn, and records made, from AES-256 in counter mode under a fresh key of the "
    "operating system; records that fail the test, and which row made one that passes, are never "
    "written"
)
_JOURNALED = (
    "every noisy answer is on disk before it is used: the next run resumes a killed one with the "
    "same answers"
)
_CHARGED = (
    "the charge was recorded before the data was opened, and was final before the first query; it "
    "was not refunded"
)
_SEEDED = "NONE: the noise was drawn from a fixed seed, for a test; anyone can subtract it"

STAIN = "This release is NOT PRIVATE: its noise was seeded. Internal only; do not share."
_UNCOUNTED_RELEASES = (
    "Releases of this dataset that are not differentially private: {releases}. What they reveal is "
    "not in any sum of epsilons here; since then no epsilon bounds what is known of a row."
)
_EXACT_ANSWERS = (
    "Runs of this account ended because the data that they opened could not be used. Each such end "
    "is an answer about the data without noise, which no epsilon covers: {answers}."
)
_SMALL_GROUPS = (
    "Noise hides small groups: counts of few rows, rare values and their combinations are not "
    "reliable. Patterns that no part of the model measures may be missing."
)
_INTERNAL = (
    "Figures that compare the synthetic with the real table are not private; they are internal and "
    "not part of this certificate."
)
OTHER_TRIES = (
    "Noisy answers of the tries that were not delivered stay in the home, in the journal of the "
    "release: the guarantee covers what was delivered, and holds while nobody else reads them."
)
_AS_GIVEN = (
    "The guarantee begins with the data as it was given: it says nothing about how the data was "
    "collected, who else has it, or whether it is right."
)
_TIMING = "How long the run took is not protected and not published."

ALWAYS_SAID = (_SMALL_GROUPS, _INTERNAL, _AS_GIVEN, _TIMING)
"""Limitations of every release."""


def definition_of(delta: Fraction) -> str:
    """The definition of privacy that a release satisfies."""
    return _DEFINITION if delta else _PURE_DEFINITION


def relation_words(relation: events.Relation | str) -> str:
    """Which two tables are neighbours."""
    if events.Relation(relation) is events.Relation.ADD_REMOVE:
        return "the table with the unit, and the table without it"
    return "the table, and the table in which the unit is replaced by any other"


def rows_words(rows: RowsSpec) -> str:
    """Whether the number of rows is public."""
    if rows.public is None:
        return "measured with noise, and charged"
    if rows.provenance.startswith(MEASURED):
        source = rows.provenance.removeprefix(MEASURED).strip()
        return f"{count_of(rows.public, 'row')}, a figure measured with noise: {source}"
    return (
        f"{count_of(rows.public, 'row')}, the number that the spec declares; how many "
        "the data holds is not published"
    )


def public_units(spec: Spec) -> int | None:
    """How many units there are, where a number is declared or was measured; None otherwise."""
    unit = spec.privacy.protected
    if isinstance(unit, PersonUnit):
        return None if spec.privacy.group else unit.declared_persons
    return spec.privacy.rows.public


def meaning(
    spec: Spec,
    epsilon: Fraction,
    delta: Fraction,
    secure: bool,
    capacity: int | None = None,
) -> tuple[str, ...]:
    """What epsilon and delta promise, in sentences."""
    if not secure:
        return (STAIN,)
    added = events.Relation(spec.privacy.relation) is events.Relation.ADD_REMOVE
    terms = {
        "noun": unit_words(spec).noun,
        "case": "is in the table or not" if added else "is as it is or any other",
        "factor": _factor(float(epsilon)),
        "apart": f", apart from a probability of {exact_text(delta)}" if delta else "",
        "further": _ANY_NUMBER if capacity is None else _NO_MORE.format(capacity=capacity),
        "certainty": f"{100 * _up(best_guess(float(epsilon), float(delta))):.1f} %",
    }
    return tuple(sentence.format(**terms) for sentence in (_CHANGE, _CERTAINTY, _ANYONE, _GROUPS))


def reuse_words(reused: Sequence[ReusedRelease], epsilon: str, delta: str) -> tuple[str, ...]:
    """A sentence on the previous releases whose numbers were reused; none without any.

    ``epsilon`` and ``delta`` are what this release was charged.
    """
    named = [
        f"{release.release} (epsilon {release.epsilon}, delta {release.delta})"
        for release in reused
    ]
    if not named:
        return ()
    return (_REUSED.format(releases=", ".join(named), epsilon=epsilon, delta=delta),)


def group_words(spec: Spec, epsilon: str, delta: str) -> tuple[str, ...]:
    """The guarantee of a row, where persons are charged by group privacy; nothing otherwise."""
    group = spec.privacy.group
    if group is None:
        return ()
    return (_OF_GROUP.format(epsilon=epsilon, delta=delta, rows=group.max_rows),)


def block_words(
    spec: Spec, blocks: Sequence[str], moves: Sequence[ReadingMove] = ()
) -> tuple[str, ...]:
    """What blocks of growing data mean for the protected unit; empty for other data.

    ``moves`` are those of the account to other readings, across which a row may be in two blocks.
    """
    block = spec.privacy.block
    if block is None:
        return ()
    whose = (_READ_OTHERWISE if moves else unit_words(spec).of_blocks).format(per=block.per)
    named = " to ".join(dict.fromkeys((blocks[0], blocks[-1])))
    if len(blocks) > 1:
        whose += _ROWS_OF_BLOCKS.format(per=block.per)
    return (_OF_BLOCKS.format(column=block.column, blocks=named, per=block.per, whose=whose),)


def odds(epsilon: float, period: float) -> tuple[Odds, ...]:
    """How certain a guess about one unit can become, for several certainties before.

    The posterior p e^epsilon / (p e^epsilon + 1 - p), apart from delta. Source: Dwork and Roth
    (2014), section 2.3; Desfontaines and Pejó (arXiv 1906.01337), section 3.
    """
    return tuple(
        Odds(
            prior=prior,
            release=_up(posterior(prior, epsilon)),
            period=_up(posterior(prior, period)),
        )
        for prior in _PRIORS
    )


def detection(
    epsilon: float, delta: Fraction, period: float, period_delta: Fraction
) -> tuple[Detection, ...]:
    """How often any attack on one unit can be right, for several shares of false alarms.

    Source: Kairouz, Oh, Viswanath (arXiv 1311.0776), theorem 2.1.
    """
    return tuple(
        Detection(
            false_alarms=alarms,
            release=_up(true_alarms(alarms, epsilon, float(delta))),
            period=_up(true_alarms(alarms, period, float(period_delta))),
        )
        for alarms in _FALSE_ALARMS
    )


def posterior(prior: float, epsilon: float) -> float:
    """The greatest certainty that a guess of certainty ``prior`` can reach."""
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


def best_guess(epsilon: float, delta: float) -> float:
    """The greatest probability of being right about two equally likely cases.

    It is (e^epsilon + delta) / (e^epsilon + 1).
    """
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def true_alarms(false_alarms: float, epsilon: float, delta: float) -> float:
    """The greatest power of a test of this size."""
    if epsilon > LARGEST_EXPONENT:
        return 1.0
    high = math.exp(epsilon) * false_alarms + delta
    return min(1.0, high, 1 - math.exp(-epsilon) * (1 - delta - false_alarms))


def safeguards(stages: Sequence[PlannedStage], secure: bool) -> tuple[str, ...]:
    """Safeguards of randomness, floating-point arithmetic and crashes."""
    if not secure:
        return (_SEEDED,)
    used = kinds(stages)
    counting = (
        (_EXACT_COUNTS,)
        if {events.GaussianCounts, events.LaplaceCounts, events.Thresholded}.intersection(used)
        else ()
    )
    seeded = (
        (_SECURE_SEEDS,)
        if {events.SeededRecords, events.UncountedRecords}.intersection(used)
        else ()
    )
    learning = (_SECURE_GRADIENTS, _ROUNDED_GRADIENTS) if events.SampledGaussian in used else ()
    return (*counting, *learning, *seeded, _JOURNALED, _CHARGED)


def limitations(
    spec: Spec,
    secure: bool,
    uncounted: int = 0,
    refusals: int = 0,
    moves: Sequence[ReadingMove] = (),
) -> tuple[str, ...]:
    """What the guarantee does not cover.

    ``uncounted`` is the number of releases of the dataset that are not differentially private,
    ``refusals`` how often its data was opened and refused, ``moves`` are those of the account to
    other readings of its data.
    """
    stain = () if secure else (STAIN,)
    apart = (_UNCOUNTED_RELEASES.format(releases=uncounted),) if uncounted else ()
    answers = count_of(refusals, "exact answer")
    answered = (_EXACT_ANSWERS.format(answers=answers),) if refusals else ()
    moved = [_MOVED.format(date=move.time[:10], reason=move.reason) for move in moves]
    return (*stain, *apart, *moved, *answered, *unit_words(spec).limits, *ALWAYS_SAID)


def _factor(epsilon: float) -> str:
    if epsilon < _LARGEST_EXPONENT:
        return figure_above(math.exp(epsilon))
    return f"10^{math.ceil(epsilon / math.log(10))}"


def _up(share: float) -> float:
    """A share rounded up to a tenth of a percent."""
    return math.ceil(round(share * 1000, 9)) / 1000
