"""Sheets as HTML: templates, and how numbers, times and states are written in them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from cloister.figures import figure, figure_above
from cloister.flows.page.visitors import Visit
from cloister.identities import known_by
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger import State
from cloister.privacy.ledger.house import key_id
from cloister.tasks.ledger.budgets import budget_text


def show(
    template: str,
    visit: Visit | None,
    facts: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A sheet; every text in it is escaped."""
    shown = {"template": template, "visit": visit, "home": visit.home if visit else "", **facts}
    text = _environment().get_template(template).render(shown)
    return HTMLResponse(text, status, dict(headers or {}))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cloister.flows.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": decimal,
        "left": decimal_below,
        "figure": figure,
        "above": figure_above,
        "budget": budget_text,
        "minute": _minute,
        "words": lambda state: State(state).words,
        "tone": _tone,
        "plain": _plain,
        "known": known_by,
        "key_id": key_id,
        "segment": lambda text: quote(str(text), safe=""),
    }
    return environment


def _minute(moment: str) -> str:
    """A time of the ledger to the minute, in UTC."""
    return moment[:16].replace("T", " ")


def _tone(state: str) -> str:
    """The colour of a state."""
    good, bad = ("approved", "published"), ("rejected", "withdrawn", "forfeited")
    return "good" if state in good else "bad" if state in bad else "wait"


def _plain(value: object) -> str:
    """A value of a rule or of a proposal in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number}" for name, number in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(known_by(str(each)) for each in value) or "none"
    return str(value)
