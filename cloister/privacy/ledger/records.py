"""What the ledger records: requests, releases and their states, budgets, places in journals.

By the places the ledger recognises older copies of a journal.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from cloister.errors import InputError
from cloister.identities import named
from cloister.privacy.exact import positive_epsilon, proper_delta, ratio
from cloister.privacy.ledger.entries import canonical, exact_json

if TYPE_CHECKING:
    from cloister.privacy.ledger.house import Deletion


@dataclass(frozen=True)
class Mark:
    """A place in a journal: how many answers lie before it, and the digest of all bytes up to it.

    ``nonce`` is drawn by the run that begins there, so that two runs never share a digest; a seal
    has none.
    """

    position: int
    digest: str
    nonce: str = ""

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """The place that an entry holds; ValueError or InputError for none that is."""
        position = body["position"]
        if type(position) is not int or position < 0:
            raise ValueError("no position")
        return cls(position, identifier("digest", body["digest"]), body["nonce"])


@dataclass(frozen=True)
class JournalState:
    """A journal as a run opened it: where the run begins, and the digests of all prefixes."""

    mark: Mark
    sealed: bool
    digests: frozenset[str]


MEASURE = "measure"
"""Method of the releases that measure a domain.

They hold a spec, and no table, model or certificate.
"""

REPLANNED = "another version plans the same request otherwise; nothing was drawn"
"""Why a reservation was given back that another version of the code had made."""

REFUSED = "the data could not be used; nothing was drawn"
"""Why a reservation was given back, or forfeited, whose data was opened and refused.

Its owner learned that the data was refused, and why.
"""

_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_SYMBOLS = "0123456789abcdefghjkmnpqrstvwxyz"

_LONGEST_TEXT = 2000
"""Most characters of a text in an entry."""


class State(StrEnum):
    """The state of a release.

    Only ``reserved`` can be given back; from ``spent`` on, and once ``forfeited``, it is final.
    """

    RESERVED = "reserved"
    SPENT = "spent"
    CANDIDATE = "candidate"
    APPROVED = "approved"
    PUBLISHED = "published"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    REFUNDED = "released_back"
    FORFEITED = "forfeited"

    @property
    def words(self) -> str:
        """The state as people read it: of a charge that was given back, that it was."""
        return "refunded" if self is State.REFUNDED else self.value

    @property
    def next(self) -> tuple[State, ...]:
        """The states that may follow."""
        return _NEXT[self]

    @property
    def resumable(self) -> bool:
        """Whether a run may resume this release without a new charge."""
        return self in (State.RESERVED, State.SPENT)

    @property
    def shareable(self) -> bool:
        """Whether the public files of the release may leave the home."""
        return self in (State.APPROVED, State.PUBLISHED)

    @property
    def charged(self) -> bool:
        """Whether the release counts against its budget."""
        return self is not State.REFUNDED


_NEXT = {
    State.RESERVED: (State.SPENT, State.REFUNDED, State.FORFEITED),
    State.SPENT: (State.CANDIDATE, State.WITHDRAWN),
    State.CANDIDATE: (State.APPROVED, State.REJECTED, State.WITHDRAWN),
    State.APPROVED: (State.PUBLISHED, State.WITHDRAWN),
    State.PUBLISHED: (State.WITHDRAWN,),
    State.REJECTED: (),
    State.WITHDRAWN: (),
    State.REFUNDED: (),
    State.FORFEITED: (),
}


def new_release_id() -> str:
    """``r-`` and ten symbols of Crockford's base 32, 50 random bits."""
    return "r-" + "".join(secrets.choice(_SYMBOLS) for _ in range(10))


def require_text(name: str, text: str) -> str:
    """``text``, if it is not blank.

    Errors: ``InputError`` if it is empty or longer than 2000 characters.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_TEXT:
        raise InputError(
            f"'{name}' is empty or longer than {_LONGEST_TEXT} characters: say it in a few words."
        )
    return text


def signed(by: str, reason: str) -> dict[str, str]:
    """Who writes an entry, and why, as its body holds them; errors as of `require_text`."""
    return {"by": require_text("by", by), "reason": require_text("reason", reason)}


def identifier(name: str, text: str) -> str:
    """``text``, if it is 1 to 128 letters, digits, dots, dashes, colons or underscores.

    Errors: ``InputError`` otherwise.
    """
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise InputError(
            f"'{name}' must be 1 to 128 of A-Z a-z 0-9 . _ : - : give it another name."
        )
    return text


@dataclass(frozen=True)
class ReservationRequest:
    """A request to reserve the price of a release, before a row is read.

    ``epsilon`` and ``delta`` are its price, ``events`` what it will do, as JSON without floats, for
    the accountant. ``unit`` and ``relation`` say whom it protects, and against which change.
    ``spend_id`` is a digest of all that determines the run: a run with the same one resumes an
    unfinished release. ``blocks`` are those that it reads of an account of growing data, in order.
    ``stain`` is text for a release that is not private (a test with fixed
    noise). Errors: ``InputError`` for an amount that is not finite, not positive or not
    representable, or a name that is empty.
    """

    dataset: str
    unit: str
    relation: str
    epsilon: Fraction
    delta: Fraction
    events: Mapping[str, Any]
    method: str
    spec_digest: str
    code_version: str
    spend_id: str
    stain: str = ""
    release: str = field(default_factory=new_release_id)
    blocks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("dataset", "unit", "relation", "method", "spec_digest", "code_version"):
            require_text(name, getattr(self, name))
        identifier("spend_id", self.spend_id)
        identifier("release", self.release)
        object.__setattr__(self, "epsilon", positive_epsilon(self.epsilon))
        object.__setattr__(self, "delta", proper_delta(self.delta))
        object.__setattr__(self, "events", exact_json(self.events))
        object.__setattr__(self, "blocks", tuple(identifier("block", b) for b in self.blocks))
        if list(self.blocks) != sorted(set(self.blocks)):
            raise InputError("Blocks are named once each, in order.")

    @cached_property
    def events_text(self) -> str:
        """The events as text, by which their cost is known again."""
        return canonical(self.events)

    def same_run(self, other: ReservationRequest) -> bool:
        """Whether both requests are the same, except for the release id and the code."""
        return replace(self, release=other.release, code_version=other.code_version) == other

    def reads(self, block: str | None) -> bool:
        """Whether it reads a block, or any (None); without blocks it reads all."""
        return block is None or not self.blocks or block in self.blocks

    @property
    def body(self) -> dict[str, Any]:
        """The request as JSON."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        del values["blocks"]
        blocks = {"blocks": list(self.blocks)} if self.blocks else {}
        return values | blocks | {"epsilon": ratio(self.epsilon), "delta": ratio(self.delta)}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """The request in ``body``, which may hold more."""
        values = {"blocks": ()} | dict(body)
        return cls(**{part.name: values[part.name] for part in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class Act:
    """Who did something to a release, when and why, by the number of its entry.

    ``person`` is whose identity it then was, by name; empty if nobody's.
    """

    seq: int
    time: str
    by: str
    reason: str
    person: str = ""

    @property
    def who(self) -> str:
        """Who did it, by name."""
        return named(self.person, self.by)


@dataclass(frozen=True)
class ReleaseStep(Act):
    """One change of a release's state, with digests of its documents."""

    state: State
    evidence: Mapping[str, str]

    @property
    def words(self) -> str:
        """What happened."""
        return self.state.words


@dataclass(frozen=True)
class Consent(Act):
    """An approval after which a release waits for others.

    It is the ``number``-th of ``needed`` by a ``role``; in no role that the rules ask for it does
    not count.
    """

    role: str
    number: int
    needed: int

    @property
    def words(self) -> str:
        """What happened."""
        if not self.role:
            return "approved (in no role that the rules count)"
        return f"approved ({self.role} {self.number} of {self.needed})"


@dataclass(frozen=True)
class Look(Act):
    """Somebody attacked the rows of a candidate by its data: a decision after it is a selection.

    ``page`` is a keyed digest of what it showed, recorded by an entry of its own.
    """

    page: str = ""

    @property
    def words(self) -> str:
        """What happened."""
        if self.page:
            return f"recorded what the attack showed (a page of keyed digest {self.page[:16]}...)"
        return "attacked by its data (to approve it then is a selection, which no epsilon covers)"


@dataclass(frozen=True)
class Release:
    """A release as the ledger knows it.

    ``runs`` are the places of its journal at which runs began, ``seal`` where it ends: nothing is
    drawn after. ``delivered`` says that its run reported its end to the requester; ``signatures``
    maps the digest of each signature on it to the entry that first recorded it. Releases of ledgers
    older than these have none. ``consents``
    are those who approved it while the rules ask for more, ``looks`` those who attacked it by its
    data; ``admission`` is the rule that its account had when it was reserved; ``deletions`` took
    what a home held.
    """

    request: ReservationRequest
    steps: tuple[ReleaseStep, ...]
    runs: tuple[Mark, ...] = ()
    seal: Mark | None = None
    delivered: bool = False
    signatures: Mapping[str, int] = field(default_factory=dict)
    consents: tuple[Consent, ...] = ()
    looks: tuple[Look, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    admission: str = "sum"

    @property
    def id(self) -> str:
        """Its name, ``r-`` and ten symbols."""
        return self.request.release

    @property
    def state(self) -> State:
        """Its current state."""
        return self.steps[-1].state

    @property
    def moves(self) -> list[ReleaseStep | Consent | Look]:
        """Its history: states, approvals that did not suffice, and looks, in order."""
        return sorted((*self.steps, *self.consents, *self.looks), key=lambda move: move.seq)

    @property
    def undelivered(self) -> bool:
        """Whether it is finished, but the requester may not know.

        No run reported it, and no person changed its state.
        """
        return self.state is State.CANDIDATE and bool(self.runs) and not self.delivered

    @property
    def pending(self) -> bool:
        """Whether the same command resumes it without a new charge."""
        return self.state.resumable or self.undelivered

    @property
    def refused(self) -> bool:
        """Whether its data was opened and refused.

        Each refusal reveals an exact fact about the data.
        """
        given_back = self.state is State.REFUNDED and self.steps[-1].reason == REFUSED
        return given_back or self.state is State.FORFEITED

    @property
    def of_domain(self) -> bool:
        """Whether it measured a domain."""
        return self.request.method == MEASURE

    @property
    def reserved_at(self) -> str:
        """When its charge was reserved, which decides the budget window it falls in."""
        return self.steps[0].time

    @property
    def evidence(self) -> dict[str, str]:
        """The evidence of all its steps: journal id, keyed data digest, digests of artefacts."""
        return {key: value for step in self.steps for key, value in step.evidence.items()}


@dataclass(frozen=True)
class Reservation:
    """The result of ``reserve``: the release, and whether an earlier run reserved it."""

    release: Release
    resumed: bool
