"""A ledger of many releases, written fast: valid, signed entries, five of each release."""

import hashlib
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from cloister.privacy.exact import ratio
from cloister.privacy.ledger import Account, BudgetGrant, Ledger, ReservationRequest, State
from cloister.privacy.ledger.books import RUN, SEALED
from cloister.privacy.ledger.records import Mark
from cloister.privacy.ledger.transactions import Transaction, marked

BY = {"by": "engineer", "reason": "the run"}

_QUERIES, _LEVELS = 20, 5
"""Queries of a plan, which take 3 kB in its entry, and the different levels of their noise."""

_BEGUN = datetime(2025, 1, 1, tzinfo=UTC)


def write_releases(ledger: Ledger, number: int, accounts: int = 10, plans: int = 50) -> None:
    """Write ``number`` releases of some accounts and plans, an hour apart, to an empty ledger.

    One in ten waits for review, the others are approved.
    """
    with ledger.writing() as transaction:
        transaction.time = _time(0)
        for account in range(accounts):
            name = f"account-{account}"
            transaction.open(Account(name, "row", "add_remove", (f"/data/{name}.csv",)), BY)
            transaction.grant(BudgetGrant.of(name, "row", number, "1/1000", "year"), BY)
        spent: dict[tuple[str, str], Fraction] = {}
        for release in range(number):
            transaction.time = _time(release)
            request = _request(release, f"account-{release % accounts}", release % plans)
            window = request.dataset, transaction.time[:4]
            spent[window] = spent.get(window, Fraction(0)) + request.epsilon
            _write(transaction, request, spent[window], approved=release % 10 > 0)


def _write(
    transaction: Transaction, request: ReservationRequest, composed: Fraction, *, approved: bool
) -> None:
    charge = request.body | BY | {"evidence": {}, "composed": ratio(composed)}
    transaction.write(State.RESERVED.value, charge)
    release = request.release
    _move(transaction, release, State.SPENT, {"data": _digest("data"), "journal": _digest(release)})
    mark = Mark(0, _digest(f"begin {release}"), "ab" * 16)
    transaction.write(RUN, marked(release, "engineer", mark))
    if not approved:
        sealed = marked(release, "engineer", Mark(9, _digest(f"end {release}")))
        transaction.write(SEALED, sealed)
    documents = ("certificate", "manifest", "signature", "tracking_run")
    evidence = {name: _digest(f"{name} {release}") for name in documents}
    _move(transaction, release, State.CANDIDATE, evidence)
    if approved:
        _move(transaction, release, State.APPROVED, {})


def _move(transaction: Transaction, release: str, to: State, evidence: dict[str, str]) -> None:
    body = {"release": release, **BY, "evidence": evidence}
    transaction.write(to.value, body)


def _request(number: int, dataset: str, plan: int) -> ReservationRequest:
    return ReservationRequest(
        dataset=dataset,
        unit="row",
        relation="add_remove",
        epsilon=Fraction(1, 10),
        delta=Fraction(1, 10**7),
        events=_events(plan),
        method="mixture",
        spec_digest=_digest(f"spec {plan}"),
        code_version="0.3.0+0123456789abcdef",
        spend_id=_digest(f"run {number}"),
        release=f"r-{number:010}",
    )


def _events(plan: int) -> dict[str, Any]:
    sensitivity = {"cells": 1, "l1": 1, "l2_squared": 1, "step": 1}
    counts, parts = {"event": "GaussianCounts", "sensitivity": sensitivity}, []
    for column in range(_QUERIES):
        noise = f"{69056940897 + 1000 * plan + column % _LEVELS}/1000000000"
        parts.append([counts | {"noise_multiplier": noise}, 1])
    return {"event": "Composed", "parts": parts}


def _time(release: int) -> str:
    return (_BEGUN + timedelta(hours=release)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
