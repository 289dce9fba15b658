"""A budget over time as a picture: what releases charged in each window, beside what was granted.

The picture is drawn by the server as SVG: nothing runs in the browser.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from cloister.privacy.ledger import Granted, Period, Release

WIDTH, HEIGHT = 720, 220
"""The picture in its own units; a page scales it."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 28
"""Margins, for the numbers of the axes."""

_TICKS = 4
"""Numbers on the axis of time: more would touch each other at 390 pixels."""


Point = Callable[[float, float], str]
"""A time and an amount as a point in the picture."""


@dataclass(frozen=True)
class Tick:
    """A number on an axis: its position, and the text beside it."""

    position: float
    text: str


@dataclass(frozen=True)
class BudgetChart:
    """Paths of an SVG: epsilon charged by time, and the budget; numbers on both axes."""

    charged: str
    area: str
    granted: str
    times: tuple[Tick, ...]
    amounts: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT


def budget_chart(
    releases: Sequence[Release], grants: Sequence[Granted], now: str
) -> BudgetChart | None:
    """The picture of an account's budget up to now; None where nothing was granted.

    Each window of the budget begins at zero. Releases that were given back are left out.
    """
    if not grants:
        return None
    caps = [(_seconds(granted.time), float(granted.budget.epsilon)) for granted in grants]
    steps = _steps(releases, grants)
    first, last = min(caps[0][0], *(moment for moment, _ in steps), caps[0][0]), _seconds(now)
    highest = max(*(cap for _, cap in caps), *(amount for _, amount in steps), 0.0)

    def point(moment: float, amount: float) -> str:
        return f"{_across(moment, first, last):.1f},{_up(amount, highest):.1f}"

    charged = _path(steps, first, last, point)
    base = f"L{point(last, 0)} L{point(first, 0)} Z"
    return BudgetChart(
        charged,
        f"{charged} {base}",
        _path(caps, caps[0][0], last, point),
        tuple(_times(first, last)),
        tuple(
            Tick(_up(share * highest, highest), f"{share * highest:.3g}") for share in (0, 0.5, 1)
        ),
    )


def _steps(releases: Sequence[Release], grants: Sequence[Granted]) -> list[tuple[float, float]]:
    """Times, and the epsilon that the window of each has charged since it began."""
    steps: list[tuple[float, float]] = []
    total, window = Fraction(0), ""
    for release in releases:
        if not release.state.charged:
            continue
        moment = release.reserved_at
        period = _period_at(grants, moment)
        if period.window(moment) != window:
            window, total = period.window(moment), Fraction(0)
            steps.append((_seconds(moment), 0.0))
        total += release.request.epsilon
        steps.append((_seconds(moment), float(total)))
    return steps


def _period_at(grants: Sequence[Granted], moment: str) -> Period:
    """The period of the budget that was the last to be granted at a moment."""
    number = bisect_right(grants, moment, key=lambda granted: granted.time)
    return grants[max(number - 1, 0)].budget.period


def _path(steps: Sequence[tuple[float, float]], first: float, last: float, point: Point) -> str:
    """A line of steps from the first time to the last."""
    amount = 0.0 if not steps or steps[0][0] > first else steps[0][1]
    parts = [f"M{point(first, amount)}"]
    for moment, following in steps:
        parts += [f"L{point(moment, amount)}", f"L{point(moment, following)}"]
        amount = following
    return " ".join([*parts, f"L{point(last, amount)}"])


def _times(first: float, last: float) -> list[Tick]:
    days = (last - first) / 86_400
    form = "%Y-%m" if days > 90 else "%d %b" if days > 3 else "%d %b %H:%M"
    moments = [first + (last - first) * step / (_TICKS - 1) for step in range(_TICKS)]
    return [
        Tick(_across(moment, first, last), datetime.fromtimestamp(moment, UTC).strftime(form))
        for moment in moments
    ]


def _across(moment: float, first: float, last: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * (moment - first) / max(last - first, 1.0)


def _up(amount: float, highest: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * amount / max(highest, 1e-12)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
