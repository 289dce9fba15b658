"""The certificate as one HTML page: nothing outside it is loaded, and it prints well."""

from __future__ import annotations

import json
import math
import re
from decimal import ROUND_CEILING, Context
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from cloister.privacy.certificate.certificate import NOT_STATED, Certificate

_TEMPLATE = "certificate.html"

_JOINTS = re.compile(r"([_./\\:+])(?=\w)")
"""Marks between the parts of a name, after which a line may break."""


def page(certificate: Certificate) -> str:
    """The page of a certificate; every text in it is escaped."""
    source = files("cloister.privacy.certificate").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return render(source, c=certificate, not_stated=NOT_STATED)


def render(source: str, **facts: object) -> str:
    """A page by its template; every text among the facts is escaped."""
    return _template(source).render(facts)


@cache
def _template(source: str) -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "figure": _figure,
        "small": _small,
        "percent": _percent,
        "grouped": _grouped,
        "event": _event,
        "soft": _soft,
    }
    return environment.from_string(source)


def _figure(amount: float) -> str:
    """A figure rounded up to three decimals, or three digits where it is small: never down."""
    if amount == 0:
        return "0"
    digits = max(3, 2 - math.floor(math.log10(abs(amount))))
    scale = 10**digits
    return f"{math.ceil(round(amount * scale, 6)) / scale:.{digits}f}".rstrip("0").rstrip(".")


def _small(amount: float) -> str:
    """Two digits of a figure that may be tiny: never rounded down."""
    above = Context(prec=2, rounding=ROUND_CEILING).create_decimal(str(amount))
    return f"{above:.2g}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _soft(text: str) -> Markup:
    """A text that may break after the marks that join the words of a name."""
    return Markup(_JOINTS.sub(r"\1<wbr>", str(escape(text))))  # noqa: S704 (escaped above)


def _event(event: dict[str, object]) -> str:
    return json.dumps(event, separators=(", ", ": "), ensure_ascii=False)
