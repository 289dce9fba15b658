"""What a spec declares beside its attributes: exact numbers, constraints, releases.

Numbers are kept exact: ``epsilon: 0.1`` is the fraction 1/10. A constraint is text here, not yet
bound to columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PrivateAttr,
    model_validator,
)

from cloister import former_names
from cloister.devices import PATTERN as DEVICE_PATTERN
from cloister.schema.attributes import Declared, is_data_derived

_MOST_BITS = 4096
"""Bits of the numerator and of the denominator of an epsilon or delta, as the ledger takes them."""


def exact_fraction(value: object) -> Fraction:
    """The fraction that a number was written as: 0.1 is 1/10; ``1/3`` may be written as text.

    Raises:
        ValueError: not a finite number.
    """
    text = str(value)
    try:
        number = Fraction(text) if "/" in text else _finite(Decimal(text))
    except (ArithmeticError, ValueError):
        raise ValueError("should be a finite number") from None
    if max(number.numerator, number.denominator).bit_length() > _MOST_BITS:
        raise ValueError("should have fewer digits")
    return number


def _finite(number: Decimal) -> Fraction:
    if not number.is_finite() or abs(number.adjusted()) > _MOST_BITS:
        raise ValueError("not finite, or far too many digits")
    return Fraction(number)


Exact = Annotated[Fraction, BeforeValidator(exact_fraction), PlainSerializer(str, return_type=str)]
DeclaredEpsilon = Annotated[Exact, Field(gt=0)]
DeclaredDelta = Annotated[Exact, Field(ge=0, lt=1)]


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
    """A public fact about a soft constraint: its ``weight``, or its ``rate``.

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
        source = (self.provenance or "").strip()
        if self.rate is not None and (not source or is_data_derived(source)):
            raise ValueError("a rate needs a public provenance; without one it is measured")
        return self


class ConstraintDeclaration(Declared):
    """One entry of ``constraints``: exactly one of ``fd``, ``deny``, ``check``, ``key``, ``file``.

    ``fd`` reads ``a, b -> c``; ``deny`` reads ``t1.x > t2.x and t1.y < t2.y``; ``check`` reads
    ``t.left is missing exactly if t.status = 'active'`` or ``t.year, t.month, t.day is a date``;
    ``key`` lists attributes that no two rows share; ``file`` is a HoloClean file beside the spec.
    Hard unless ``soft``, of which a weight or a rate may be known. ``provenance`` is a public
    source, or ``data-derived``, which a release refuses: that all rows of the data agree with a
    rule is a fact of the data.
    """

    name: str | None = Field(default=None, min_length=1)
    fd: str | None = Field(default=None, min_length=1)
    deny: str | None = Field(default=None, min_length=1)
    check: str | None = Field(default=None, min_length=1)
    key: list[str] | None = Field(default=None, min_length=1)
    file: str | None = Field(default=None, min_length=1)
    soft: bool | KnownSoftness = False
    provenance: str = Field(default="", max_length=500, exclude_if=lambda value: not value)

    @property
    def data_derived(self) -> bool:
        """Whether the rule was taken from the data and not yet declared public by a person."""
        return is_data_derived(self.provenance)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(getattr(self, form) is not None for form in _FORMS) != 1:
            raise ValueError(
                "a constraint has exactly one of fd, deny, check, key and file; keep one, "
                "split the others"
            )
        return self


MOST_TRIES = 10_000
"""Tries of accept-reject for a cell at most: a row then needs 160 kB of random numbers."""

DIFFERENTIAL_PRIVACY = "differential-privacy"
"""The guarantee of every method; one that has another names it."""


Sampling = Literal["supports", "sequential"]


def _is_none(value: object) -> bool:
    """Whether a key that not every spec has is absent: it is left out of the spec's digest."""
    return value is None


class AcceptRejectSpec(Declared):
    """Candidates of a cell are drawn by probability, at most ``tries``, and accepted by penalty."""

    tries: int = Field(default=300, ge=1, le=MOST_TRIES)


LATEST = "latest"
"""In place of a release: the latest one of the dataset that can be used."""

PRIOR_PATTERN = r"^(latest|r-[0-9a-z]{1,32})$"
"""The release to reuse: an id, or the latest."""

PriorRelease = Annotated[str, Field(pattern=PRIOR_PATTERN)]


MOST_FITS = 20
"""Tries of a release at most: each is a fit, and a release of twenty takes twenty times as long."""


class RegressionSpec(Declared):
    """A linear regression of ``target`` on other attributes."""

    target: str
    on: tuple[str, ...] = Field(min_length=1)


class CriterionSpec(Declared):
    """One acceptance criterion: the ``largest`` error of a ``marginal``, or of a ``regression``.

    Of a marginal it is the total variation distance, of a regression the largest difference of a
    coefficient, of values scaled to 0 to 1.
    """

    marginal: tuple[str, ...] | None = Field(default=None, min_length=1)
    regression: RegressionSpec | None = None
    largest: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.marginal is None) == (self.regression is None):
            raise ValueError("a criterion is of a marginal or of a regression; keep one of them")
        if len(set(self.attributes)) < len(self.attributes):
            raise ValueError("a criterion names an attribute twice; name each once")
        return self

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of its table, the target of a regression last."""
        if self.regression is None:
            return self.marginal or ()
        return (*self.regression.on, self.regression.target)


class AcceptanceSpec(Declared):
    """What rows must meet: fits are tried until they do, at most ``tries`` of them.

    ``share`` of epsilon is for the noisy counts that errors are measured against.
    """

    share: Annotated[Exact, Field(gt=0, lt=1)] = Fraction(1, 10)
    tries: int = Field(default=3, ge=1, le=MOST_FITS)
    criteria: tuple[CriterionSpec, ...] = Field(min_length=1)


class ReleaseSpec(Declared):
    """The budget and method of a release.

    ``rows`` is the size of the output, by default that of the table. Method ``auto`` is chosen by
    public facts: sizes, domains, constraints and budget. ``options`` are the method's own, which
    reads them by a model of its own. ``guarantee`` is what records made from seeds are released
    under. ``acceptance`` is what the rows must meet. ``prior`` is a previous release, or the
    ``latest``, whose noisy numbers are used again.
    ``sampling`` of soft constraints is inside ``supports``, where rows are independent, or
    ``sequential``, row by row (Kamino, Algorithm 3): then a share ``resample`` of each attribute's
    cells is drawn anew, and candidates may be drawn by ``accept_reject``.
    ``device`` is where tensors are computed: auto, cpu, cuda or cuda:NUMBER.
    """

    method: str = "auto"
    epsilon: DeclaredEpsilon
    delta: DeclaredDelta
    rows: int | None = Field(default=None, ge=1)
    guarantee: str = Field(
        default=DIFFERENTIAL_PRIVACY, exclude_if=lambda value: value == DIFFERENTIAL_PRIVACY
    )
    options: dict[str, Any] | None = Field(default=None, exclude_if=_is_none)
    acceptance: AcceptanceSpec | None = Field(default=None, exclude_if=_is_none)
    sampling: Sampling | None = Field(default=None, exclude_if=_is_none)
    prior: PriorRelease | None = Field(default=None, exclude_if=_is_none)
    resample: float | None = Field(default=None, ge=0, le=1, exclude_if=_is_none)
    accept_reject: AcceptRejectSpec | None = Field(default=None, exclude_if=_is_none)
    device: str | None = Field(default=None, pattern=DEVICE_PATTERN, exclude_if=_is_none)

    _options_key: str = PrivateAttr(default="options")

    @property
    def options_key(self) -> str:
        """The key that the options were written under: of an earlier version, one of a method."""
        return self._options_key

    @model_validator(mode="wrap")
    @classmethod
    def _with_former_keys(cls, content: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(content, Mapping):
            return handler(content)
        known = ("options", *former_names.OPTIONS)
        keys = [key for key in known if content.get(key) is not None] or ["options"]
        if len(keys) > 1:
            raise ValueError(f"{keys[0]} and {keys[1]} are options of one method; keep one of them")
        if not isinstance(options := content.get(keys[0]), Mapping | None):
            raise ValueError(f"{keys[0]} should be a mapping of keys")  # noqa: TRY004 - pydantic's
        rest = {name: value for name, value in content.items() if name not in known}
        release = handler(rest | {"options": options})
        release._options_key = keys[0]
        return release
