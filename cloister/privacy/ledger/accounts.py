"""Accounts: data sets, the blocks of growing ones, and the budgets that are granted to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fractions import Fraction
from typing import Any, Self

from cloister.errors import InputError
from cloister.privacy.exact import Amount, positive_epsilon, proper_delta, ratio
from cloister.privacy.ledger.records import require_text


@dataclass(frozen=True)
class BlockScheme:
    """How an account of growing data is divided into blocks: by a date column, per month or year.

    ``form`` says how its cells are read: type and format. A row that two specs read otherwise would
    be in two blocks.
    """

    column: str
    form: str
    per: str

    def __post_init__(self) -> None:
        texts = (self.column, self.form)
        if self.per not in ("month", "year") or not all(isinstance(t, str) and t for t in texts):
            raise InputError("Blocks are of a column, per month or per year: name both.")

    def __str__(self) -> str:
        return f"{self.column} ({self.form}) per {self.per}"

    def names(self, block: str) -> bool:
        """Whether a block of this name may be: ``2026-10``, or ``2026``."""
        months = r"-(0[1-9]|1[0-2])" if self.per == "month" else ""
        return bool(re.fullmatch(r"[0-9]{4}" + months, block))

    @property
    def body(self) -> dict[str, str]:
        """The partition as JSON."""
        return {part.name: str(getattr(self, part.name)) for part in fields(self)}

    @classmethod
    def parse(cls, text: str) -> Self:
        """The partition that ``admitted (date) per month`` names, as ``str`` writes it.

        Errors: ``InputError`` if the text is of another form.
        """
        match = re.fullmatch(r"(.+) \((.+)\) per (month|year)", text)
        if match is None:
            raise InputError(
                f"'{text}' names no blocks: write COLUMN (TYPE) per month, or per year, with a "
                "declared format as COLUMN (TYPE, FORMAT)."
            )
        return cls(*match.groups())

    @classmethod
    def from_body(cls, body: Mapping[str, str]) -> Self:
        """The partition in ``body``, which may hold more."""
        return cls(*(body[part.name] for part in fields(cls)))


@dataclass(frozen=True)
class ReadingMove:
    """An officer's decision that an account is read in another way from now on; when and why."""

    time: str
    by: str
    reason: str


class Period(StrEnum):
    """How long a budget lasts: calendar years or months in UTC, or for ever."""

    YEAR = "year"
    MONTH = "month"
    EVER = "ever"

    def window(self, time: str) -> str:
        """The window that an ISO ``time`` falls in: ``2026``, ``2026-11`` or ``ever``."""
        return {Period.YEAR: time[:4], Period.MONTH: time[:7], Period.EVER: "ever"}[self]


@dataclass(frozen=True)
class Account:
    """A data set as the ledger knows it: where it lies, and whom its releases protect, for life.

    ``places`` are files, folders, tables of databases and patterns of them (``*``); data is of one
    account.
    The budget of growing data is that of each block of a ``partition``. ``reading`` says how its
    sources are read as rows, units and blocks: facts in words, by name. Releases that read one file
    otherwise would protect other units. It is for life, but for ``moves``.
    """

    name: str
    unit: str
    relation: str
    places: tuple[str, ...] = ()
    partition: BlockScheme | None = None
    reading: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[ReadingMove, ...] = ()

    def __post_init__(self) -> None:
        for name in ("name", "unit", "relation"):
            require_text(name, getattr(self, name))
        if self.partition and self.relation != "add_remove":
            raise InputError("A row that is replaced may change its block: use add_remove.")
        if not all(isinstance(location, str) and location for location in self.places):
            raise InputError("a place of an account is empty: name a file or a table")
        if not all(isinstance(t, str) and t for fact in self.reading.items() for t in fact):
            raise InputError("a reading is facts in words, by name")

    def contradictions(self, reading: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """The facts of another reading that are not this account's: its own, and the other's."""
        return {
            name: (self.reading[name], fact)
            for name, fact in reading.items()
            if self.reading.get(name, fact) != fact
        }

    def holds(self, location: str) -> bool:
        """Whether a location, or one that a pattern covers, is registered."""
        return any(_covers(mine, location) or _covers(location, mine) for mine in self.places)

    def divided_into(self, blocks: Sequence[str]) -> bool:
        """Whether it has such blocks, at least one; none of data that is not divided."""
        if self.partition is None:
            return not blocks
        return bool(blocks) and all(map(self.partition.names, blocks))

    def overlaps(self, location: str) -> bool:
        """Whether some data may lie both at a location and at a registered one.

        Two patterns may fit one name, and a folder holds what is in it. Ledgers of earlier versions
        registered such places to two accounts, so that reading them asks for :meth:`holds` alone.
        """
        return self.holds(location) or any(_overlap(mine, location) for mine in self.places)

    @property
    def body(self) -> dict[str, Any]:
        """The account as JSON."""
        return {
            "account": self.name,
            "unit": self.unit,
            "relation": self.relation,
            "places": list(self.places),
            **({"partition": self.partition.body} if self.partition else {}),
            **({"reading": dict(self.reading)} if self.reading else {}),
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """The account in ``body``, which may hold more."""
        named, partition = (body["account"], body["unit"], body["relation"]), body.get("partition")
        divided = BlockScheme.from_body(partition) if partition else None
        return cls(*named, tuple(body["places"]), divided, dict(body.get("reading", {})))


def _covers(pattern: str, location: str) -> bool:
    """Whether a pattern covers a location; only ``*`` has a meaning of its own in it."""
    if "*" not in pattern:
        return pattern == location
    return bool(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), location, re.DOTALL))


def _overlap(first: str, second: str) -> bool:
    """Whether two patterns fit one text, or one location is a folder above another."""
    if "*" in first and "*" in second:  # what is between their ends fits both, in either order
        (head, *_, tail), (second_head, *_, second_tail) = first.split("*"), second.split("*")
        heads_fit = head.startswith(second_head) or second_head.startswith(head)
        return heads_fit and (tail.endswith(second_tail) or second_tail.endswith(tail))
    return first.startswith(f"{second}/") or second.startswith(f"{first}/")


@dataclass(frozen=True)
class BudgetGrant:
    """A budget of a dataset and unit: a cap on the composed epsilon at delta, per period."""

    dataset: str
    unit: str
    epsilon: Fraction
    delta: Fraction
    period: Period

    @classmethod
    def of(cls, dataset: str, unit: str, epsilon: Amount, delta: Amount, period: str) -> Self:
        """A budget of checked values.

        Errors: ``InputError`` for an amount or period that cannot be one.
        """
        if period not in set(Period):
            raise InputError(f"A budget lasts per {', '.join(Period)}: choose one of them.")
        amounts = positive_epsilon(epsilon), proper_delta(delta)
        return cls(
            require_text("dataset", dataset), require_text("unit", unit), *amounts, Period(period)
        )

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """The budget in ``body``, which may hold more."""
        return cls.of(body["dataset"], body["unit"], body["epsilon"], body["delta"], body["period"])

    @property
    def body(self) -> dict[str, str]:
        """The budget as JSON."""
        caps = {"epsilon": ratio(self.epsilon), "delta": ratio(self.delta)}
        return {"dataset": self.dataset, "unit": self.unit, "period": self.period.value} | caps


@dataclass(frozen=True)
class Granted:
    """One grant in the history of a budget; ``confirmed`` is who confirmed it, if rules require."""

    budget: BudgetGrant
    seq: int
    time: str
    by: str
    reason: str
    confirmed: str = ""


@dataclass(frozen=True)
class Opening:
    """The account that a first release opens, with the budget that its spec declares."""

    account: Account
    budget: BudgetGrant
    reason: str
