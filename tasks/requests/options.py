"""What a release request says, else what its spec declares: checked, and exact."""

from __future__ import annotations

from fractions import Fraction

from cloister.errors import InputError, PlanError
from cloister.models.task import Budget, RowSampling, rows_by_default, sampling_of
from cloister.privacy.exact import exact
from cloister.schema.declarations import MOST_TRIES
from cloister.schema.spec import Spec
from cloister.tasks.requests import MOST_ROWS, MOST_SEED
from cloister.tasks.requests.release_request import ReleaseRequest

_LEAST_EPSILON = Fraction(1, 10**9)
"""Least epsilon: with less, every answer of every method is noise."""

_GREATEST_EPSILON = 1000
"""Greatest epsilon: a greater one promises nothing."""


def public_rows(spec: Spec) -> int:
    """The declared number of rows of the data.

    Raises:
        PlanError: the spec marks it to be measured, which is a step of its own.
    """
    rows = spec.privacy.rows.public
    if rows is None:
        raise PlanError(
            f"spec '{spec.name}': the number of rows is to be measured; run cloister spec measure, "
            "or declare a public "
            "figure, privacy.rows: {public: NUMBER}"
        )
    return rows


def require_small_delta(budget: Budget, spec: Spec) -> None:
    """Check that delta is below one in the declared number of rows.

    Zero is for methods of pure epsilon.

    Raises:
        PlanError: it is not.
    """
    rows = public_rows(spec)
    if not 0 <= budget.delta < Fraction(1, rows):
        raise PlanError(
            f"delta should be at least 0 and less than 1 / rows = 1 / {rows}; give another with "
            "--delta"
        )


def budget_of(spec: Spec, request: ReleaseRequest) -> Budget:
    """The budget of the request, else the one that a spec declares.

    Raises:
        PlanError: epsilon or delta cannot be.
    """
    epsilon = (
        spec.release.epsilon if request.epsilon is None else _amount("epsilon", request.epsilon)
    )
    delta = spec.release.delta if request.delta is None else _amount("delta", request.delta)
    if epsilon <= 0:
        raise PlanError("epsilon should be above 0; give a positive one with --epsilon")
    if epsilon < _LEAST_EPSILON:
        raise PlanError(
            f"epsilon should be at least {float(_LEAST_EPSILON)}: with less, all would be noise; "
            "raise --epsilon"
        )
    if epsilon > _GREATEST_EPSILON:
        raise PlanError(
            f"epsilon should be at most {_GREATEST_EPSILON}: a greater one promises nothing; lower "
            "--epsilon"
        )
    return Budget(epsilon, delta)


def _amount(name: str, text: str) -> Fraction:
    try:
        return exact(text)
    except InputError:
        raise PlanError(
            f"{name} should be a finite number; give one such as 0.5, 1e-6 or 1/3 with --{name}"
        ) from None


def rows_of(spec: Spec, request: ReleaseRequest) -> int:
    """Rows of the output: as the request says, else as a spec does, else about those of the data.

    Raises:
        PlanError: there are too few or too many.
    """
    declared = spec.release.rows or rows_by_default(spec, public_rows(spec))
    rows = declared if request.rows is None else request.rows
    if not 1 <= rows <= MOST_ROWS:
        raise PlanError(
            f"the number of rows should be from 1 to {MOST_ROWS:,}; give another one with --rows"
        )
    return rows


def sampling_wanted(spec: Spec, request: ReleaseRequest) -> RowSampling:
    """How rows are drawn under soft constraints: as the request says, else as a spec does.

    Raises:
        PlanError: they cannot be drawn so.
    """
    declared = sampling_of(spec.release)
    if spec.tables and (request.sampling or declared.way):
        raise PlanError(
            "release.sampling is of one table, and the dataset has several; leave it out"
        )
    share = declared.resampled if request.resample is None else request.resample
    tries = declared.tries if request.accept_reject is None else request.accept_reject
    if not 0 <= share <= 1:
        raise PlanError(
            "the share of cells that are drawn anew should be from 0 to 1; give another one with "
            "--resample"
        )
    if tries is not None and not 1 <= tries <= MOST_TRIES:
        raise PlanError(
            f"the tries of accept-reject should be from 1 to {MOST_TRIES:,}; give another number "
            "with --accept-reject"
        )
    return RowSampling(request.sampling or declared.way, share, tries)


def require_seed(request: ReleaseRequest) -> None:
    """Check the seed of the drawing of rows.

    Raises:
        InputError: it cannot be one.
    """
    seed = request.seed_sampling
    if seed is not None and not 0 <= seed <= MOST_SEED:
        raise InputError(
            "the seed should be from 0 to 2^63 - 1; give another one with --seed-sampling"
        )
