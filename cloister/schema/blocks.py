"""Blocks of growing data: the rows whose own date lies in a month, or in a year.

A row is in one block, by its own cell of one column. Which rows are of a block depends on no other
row, so that adding or removing a row changes the rows of one block alone.

Source: Lecuyer et al., "Privacy accounting and quality control in the Sage differentially private
    ML platform" (SOSP 2019, arXiv 1909.01502), block composition; Luo et al., "Privacy budget
    scheduling" (PrivateKube, OSDI 2021), private blocks by time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from cloister.errors import PlanError
from cloister.schema.spec import BlockSpec, Spec

PREVIOUS = "previous"
"""The block before that of the day of the run: for recurring releases."""

_NAMES = {"month": re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])"), "year": re.compile(r"[0-9]{4}")}

LETTERS = {"month": 7, "year": 4}
"""Letters of an ISO date that name its block."""

_MOST_BLOCKS = 600
"""Blocks of a release at most: fifty years of months."""


def blocks_of(spec: Spec, text: str | None, now: datetime | None = None) -> tuple[str, ...]:
    """The blocks that a release reads, in order: ``2026-10``, ``2026-08..2026-10``, ``previous``.

    None for a spec without blocks. ``now`` is when the run is due.

    Raises:
        PlanError: a spec with blocks is given none, or one without some, or no block has this name.
    """
    block = spec.privacy.block
    if block is None:
        if text is not None:
            raise PlanError("--block is of growing data; declare privacy.block, or leave it out")
        return ()
    if text is None:
        raise PlanError(
            f"the data has a budget for each {block.per}; name the {block.per}s to read with "
            f"--block, as {_example(block)}, or previous"
        )
    if text == PREVIOUS:
        return (previous(block.per, now or datetime.now(UTC)),)
    first, dots, last = text.partition("..")
    return tuple(_range(block, first, last if dots else first))


def previous(per: str, now: datetime) -> str:
    """The block before that of a moment, in UTC."""
    day = now.astimezone(UTC).date()
    begun = day.replace(day=1) if per == "month" else day.replace(month=1, day=1)
    return (begun - timedelta(days=1)).isoformat()[: LETTERS[per]]


def _range(block: BlockSpec, first: str, last: str) -> Iterator[str]:
    if not (_NAMES[block.per].fullmatch(first) and _NAMES[block.per].fullmatch(last)):
        raise PlanError(
            f"--block names {block.per}s: as {_example(block)}, FIRST..LAST, or previous"
        )
    numbers = range(_number(first), _number(last) + 1)
    if not 1 <= len(numbers) <= _MOST_BLOCKS or "0000" in (first[:4], last[:4]):
        raise PlanError(f"--block names 1 to {_MOST_BLOCKS} {block.per}s, the first one first")
    for number in numbers:
        year, month = (number, 1) if block.per == "year" else (number // 12, number % 12 + 1)
        yield date(year, month, 1).isoformat()[: LETTERS[block.per]]


def _number(name: str) -> int:
    """The number of a block in their order."""
    year, _, month = name.partition("-")
    return int(year) * 12 + int(month) - 1 if month else int(year)


def _example(block: BlockSpec) -> str:
    return "2026-10" if block.per == "month" else "2026"
