"""The books: budgets and releases as the entries say, one entry at a time, from nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from cloister.errors import InputError, VerificationError
from cloister.privacy.ledger.entries import Entry
from cloister.privacy.ledger.records import Budget, Release, Request, State, Step, required

GRANTED = "budget_granted"
"""Kind of the entries that grant a budget; every other kind is a ``State``."""


class Books:
    """Budgets by dataset and unit, releases by id, in the order of the entries."""

    def __init__(self) -> None:
        self.budgets: dict[tuple[str, str], Budget] = {}
        self.releases: dict[str, Release] = {}
        self._runs: dict[str, list[str]] = {}

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The books after ``entries``.

        Errors: ``VerificationError`` naming an entry that no ledger could have written.
        """
        books = cls()
        for entry in entries:
            try:
                books.post(entry)
            except VerificationError as error:
                raise VerificationError(f"Entry {entry.seq} of the ledger {error}: run cloister verify.") from error
        return books

    def post(self, entry: Entry) -> None:
        """Take in one entry.

        Errors: ``VerificationError`` if no ledger could have written it here.
        """
        try:
            self._post(entry)
        except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
            raise VerificationError("holds what no ledger writes at this place") from error

    def unfinished(self, spend_id: str) -> Release | None:
        """The release that a run with ``spend_id`` goes on with."""
        last = self._runs.get(spend_id, [None])[-1]
        release = self.releases[last] if last else None
        return release if release and release.state.resumable else None

    def spend_slot(self, spend_id: str) -> str:
        """The slot of the next reservation under ``spend_id``."""
        return f"spend/{spend_id}/{len(self._runs.get(spend_id, []))}"

    def _post(self, entry: Entry) -> None:
        if entry.kind == GRANTED:
            self._grant(entry)
        elif entry.kind == State.RESERVED:
            self._reserve(entry)
        else:
            self._move(entry)

    def _grant(self, entry: Entry) -> None:
        body = entry.body
        budget = Budget.of(body["dataset"], body["unit"], body["epsilon"], body["delta"], body["period"])
        _require_slot(entry, grant_slot(entry.seq))
        self.budgets[budget.dataset, budget.unit] = budget

    def _reserve(self, entry: Entry) -> None:
        request = Request.read(entry.body)
        _require_slot(entry, self.spend_slot(request.spend_id))
        if request.release in self.releases or self.unfinished(request.spend_id):
            raise ValueError("reserved twice")
        self.releases[request.release] = Release(request, (_step(entry),))
        self._runs.setdefault(request.spend_id, []).append(request.release)

    def _move(self, entry: Entry) -> None:
        release = self.releases[entry.body["release"]]
        step = _step(entry)
        _require_slot(entry, move_slot(release.id, step.state))
        if step.state not in release.state.next:
            raise ValueError("not allowed from this state")
        self.releases[release.id] = Release(release.request, (*release.steps, step))


def grant_slot(seq: int) -> str:
    """The slot of a grant: each grant is new."""
    return f"grant/{seq}"


def move_slot(release: str, state: State) -> str:
    """The slot of a move: a release enters each state once."""
    return f"move/{release}/{state.value}"


def _require_slot(entry: Entry, slot: str) -> None:
    if entry.slot != slot:
        raise ValueError("another slot")


def _step(entry: Entry) -> Step:
    body = entry.body
    evidence = {key: required(key, digest) for key, digest in body["evidence"].items()}
    return Step(State(entry.kind), entry.seq, entry.time, required("by", body["by"]), body["reason"], evidence)
