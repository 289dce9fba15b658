"""Numbers in texts that people read: never with an exponent, thousands in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence


def figure(number: float, digits: int = 3) -> str:
    """A finite number rounded to significant ``digits``: ``1,430``, ``0.0123``, ``2``."""
    if not number:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(number)))
    rounded = round(number, places)
    text = f"{rounded:,.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def figure_range(numbers: Sequence[float], digits: int = 3) -> str:
    """The least and the greatest of some numbers: ``1,430 to 4,800``; one, if they look alike."""
    least, most = figure(min(numbers), digits), figure(max(numbers), digits)
    return least if least == most else f"{least} to {most}"
