"""Results as HTML, for notebooks; every text is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from html import escape

import pandas as pd

from cloister.figures import figure, percent
from cloister.privacy.certificate.schema import ConstraintOrigin
from cloister.tasks.requests.plan import StageCost

_SHOWN = 5
"""Rows of a frame that are shown: enough to see its columns."""


def facts_table(title: str, content: Mapping[str, object]) -> str:
    """Names and values, a line each."""
    return _table(title, (), [(name, text(value)) for name, value in content.items()])


def spend_table(stages: Sequence[StageCost], epsilon: float, delta: Fraction) -> str:
    """What each stage spends alone, and all together."""
    rows = [
        (stage.name, "not DP" if stage.epsilon is None else text(stage.epsilon), stage.explanation)
        for stage in stages
    ]
    rows += [
        ("sampling", "0", "drawing rows is post-processing"),
        ("all together", text(epsilon), ""),
    ]
    return _table(
        f"Privacy spend at delta {text(float(delta))}", ("stage", "epsilon alone", "what for"), rows
    )


def constraints_table(origins: Sequence[ConstraintOrigin]) -> str:
    """Constraints with their violations in the synthetic table; nothing if there are none."""
    if not origins:
        return ""
    rows = [
        (
            origin.name,
            "hard" if origin.hard else "soft",
            text(origin.violations),
            percent(origin.percent),
        )
        for origin in origins
    ]
    return _table(
        "Constraints in the synthetic table", ("constraint", "kind", "violations", "of all"), rows
    )


def first_rows(frame: pd.DataFrame) -> str:
    """The first rows of a frame."""
    return str(frame.head(_SHOWN).to_html(border=0, index=False))


def text(value: object) -> str:
    """A number to four digits, anything else as it is."""
    return figure(value, 4) if isinstance(value, float) and math.isfinite(value) else str(value)


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>"
        + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    caption = f"<caption><b>{escape(title)}</b></caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
