"""A constraint as a spec declares it: text, not yet bound to columns."""

from __future__ import annotations

import math
import re
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from cloister.schema.attributes import DATA_DERIVED, Declared

_FORMS = ("fd", "deny", "check", "key", "file")


BARE_NAME = r"\w(?:[\w.]|-(?!>))*"
"""The pattern of a name that the text forms of constraints write as it is."""


def quote(name: str) -> str:
    """An attribute name as the text forms write it: bare, or in backquotes."""
    return name if re.fullmatch(BARE_NAME, name) else "`" + name.replace("`", "``") + "`"


def share_of(value: object) -> object:
    """The share that a rate is written as: ``1 %`` is 0.01; anything else as it is."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        try:
            return float(value.rstrip().removesuffix("%")) / 100
        except ValueError:
            return math.nan
    return value


class KnownSoftness(Declared):
    """What is known of a soft constraint without the data: its ``weight``, or its ``rate``.

    ``weight`` is the cost of one violation in nats: a table with v violations has the factor
    exp(-weight v) (Kamino, equation 1). ``rate`` is the share of pairs of rows, or of rows, that
    violate it; ``provenance`` says where it is known from.
    """

    weight: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)] | None = None
    rate: (
        Annotated[float, BeforeValidator(share_of), Field(gt=0, le=1, allow_inf_nan=False)] | None
    ) = None
    provenance: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_figure(self) -> Self:
        if (self.weight is None) == (self.rate is None):
            raise ValueError("a soft constraint has a weight or a rate; keep one of them")
        source = (self.provenance or "").strip().lower()
        if self.rate is not None and (not source or source.startswith(DATA_DERIVED)):
            raise ValueError("a rate needs a public provenance; without one it is measured")
        return self


class ConstraintDeclaration(Declared):
    """One entry of ``constraints``: exactly one of ``fd``, ``deny``, ``check``, ``key``, ``file``.

    ``fd`` reads ``a, b -> c``; ``deny`` reads ``t1.x > t2.x and t1.y < t2.y``; ``check`` reads
    ``t.left is missing exactly if t.status = 'active'``; ``key`` lists attributes that no two rows
    share; ``file`` is a HoloClean file beside the spec. Hard unless ``soft``, of which a weight or
    a rate may be known.
    """

    name: str | None = Field(default=None, min_length=1)
    fd: str | None = Field(default=None, min_length=1)
    deny: str | None = Field(default=None, min_length=1)
    check: str | None = Field(default=None, min_length=1)
    key: list[str] | None = Field(default=None, min_length=1)
    file: str | None = Field(default=None, min_length=1)
    soft: bool | KnownSoftness = False

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(getattr(self, form) is not None for form in _FORMS) != 1:
            raise ValueError(
                "a constraint has exactly one of fd, deny, check, key and file; keep one, "
                "split the others"
            )
        return self
