"""Running sums of charges, by account and window, so that a charge costs the same in any ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from cloister.privacy.ledger.accounts import Period
from cloister.privacy.ledger.records import Release, State


class ChargeState(StrEnum):
    """How a release counts.

    Reserved; opened, which is final; forfeited, or given back, since its data was refused; given
    back otherwise.
    """

    RESERVED = "reserved"
    OPENED = "opened"
    FORFEITED = "forfeited"
    REFUSED = "refused"
    RETURNED = "returned"

    @classmethod
    def of(cls, release: Release) -> ChargeState:
        """The standing of a release."""
        if release.state in _STANDINGS:
            return _STANDINGS[release.state]
        if release.state is not State.REFUNDED:
            return cls.OPENED
        return cls.REFUSED if release.refused else cls.RETURNED


_STANDINGS = {State.RESERVED: ChargeState.RESERVED, State.FORFEITED: ChargeState.FORFEITED}

CHARGED = (ChargeState.RESERVED, ChargeState.OPENED, ChargeState.FORFEITED)
"""The standings that count against a budget."""

QUERIED, FINAL = CHARGED[:2], CHARGED[1:]
"""Those whose data was or may be queried, and those whose charge is final."""

REFUSALS = (ChargeState.FORFEITED, ChargeState.REFUSED)
"""Those of releases whose data was refused."""


@dataclass(frozen=True)
class Sum:
    """How many releases, and the sums of their epsilons and deltas."""

    number: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """The sum of both; with ``times`` -1, what is left without the other."""
        return Sum(
            self.number + times * other.number,
            self.epsilon + times * other.epsilon,
            self.delta + times * other.delta,
        )


@dataclass(frozen=True)
class Key:
    """What distinguishes releases of a window.

    Those of ``block`` None are all, of "" those that name none of growing data: they read each.
    """

    unit: str
    relation: str
    standing: ChargeState
    admission: str
    block: str | None = None


@dataclass
class Sums:
    """The sums of each dataset and window, by what distinguishes its releases."""

    parts: dict[tuple[str, str], dict[Key, Sum]] = field(default_factory=dict)

    def move(self, before: Release | None, after: Release) -> None:
        """Count a release as it is now, in place of what it was."""
        if before and ChargeState.of(before) is ChargeState.of(after):
            return
        if before:
            self._count(before, -1)
        self._count(after, 1)

    def _count(self, release: Release, times: int) -> None:
        asked, one = release.request, Sum(1, release.request.epsilon, release.request.delta)
        of = asked.unit, asked.relation, ChargeState.of(release), release.admission
        for window in (period.window(release.reserved_at) for period in Period):
            parts = self.parts.setdefault((asked.dataset, window), {})
            for key in (Key(*of, block) for block in (None, *(asked.blocks or ("",)))):
                parts[key] = parts.get(key, Sum()).plus(one, times)
                if not parts[key].number:
                    del parts[key]


def falls_in(release: Release, window: str) -> bool:
    """Whether the charge of a release falls in a window: its time begins with a year or month."""
    return window == Period.EVER or release.reserved_at.startswith(window)
