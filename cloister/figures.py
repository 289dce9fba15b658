"""Numbers in texts that people read: never with an exponent, thousands in groups; with nouns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context


def figure(number: float, digits: int = 3) -> str:
    """A finite number rounded to significant ``digits``: ``1,430``, ``0.0123``, ``2``."""
    if not number:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(number)))
    rounded = round(number, places)
    return _plain(f"{rounded:,.{max(places, 0)}f}")


def figure_above(number: float, digits: int = 3) -> str:
    """A bound as :func:`figure` has it, but never less than it is: ``1.23`` for 1.2214."""
    above = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(str(number))
    return _plain(f"{above:,f}")


def figure_range(numbers: Sequence[float], digits: int = 3) -> str:
    """The least and the greatest of some numbers: ``1,430 to 4,800``; one, if they look alike."""
    least, most = figure(min(numbers), digits), figure(max(numbers), digits)
    return least if least == most else f"{least} to {most}"


def percent(number: float) -> str:
    """A number of percent to three digits: ``12.3 %``, ``0.000056 %``."""
    return f"{figure(number)} %"


def count_of(number: int | str, noun: str, plural: str = "") -> str:
    """A number, or its text, with its noun: ``1 row``, ``2,000 rows``, ``0.5 rows``."""
    text = number if isinstance(number, str) else f"{number:,}"
    return f"{text} {noun if text == '1' else plural or f'{noun}s'}"


def listed(noun: str, items: Sequence[object]) -> str:
    """A noun with what it names: ``row 3``, ``rows 3, 4``."""
    return f"{noun}{'' if len(items) == 1 else 's'} {', '.join(map(str, items))}"


def _plain(text: str) -> str:
    """A number without zeros at its end."""
    return text.rstrip("0").rstrip(".") if "." in text else text
