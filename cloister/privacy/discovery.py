"""Measured domains: bounds, values, missing cells and the number of rows, found with noise.

The measurement is charged as a release of its own, and planned beforehand. Of each attribute one
public partition is counted with noise. A bound is the outer end of the outermost part whose noisy
count reaches a threshold; the probability that any part of an empty partition does is at most
1/1000. Values of a category come from a thresholded histogram; all others are to become missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from cloister.arrays import Integers
from cloister.errors import PlanError
from cloister.privacy.accounting.accountants import calibrate
from cloister.privacy.events import Composed, Event, compose, repeat
from cloister.privacy.mechanisms.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Neighbours,
    SparseHistogram,
)
from cloister.privacy.queries import raw_columns
from cloister.schema import attributes as types
from cloister.schema.parsing import holds_numbers
from cloister.schema.ticks import representable
from cloister.schema.written_moments import in_seconds, written_micros

_MISTAKES = Fraction(1, 1000)
"""Greatest probability that the noisy count of any part of an empty partition reaches the
threshold."""

_POINT_MASS = 0.1
"""Share of the rows from which zero is declared a special value of a numeric attribute."""

_FEWEST_MULTIPLES = 9
"""Multiples of a step in a range at least, as of half stars from 1 to 5: of so many other numbers
all are multiples of five units by chance once in two million columns."""

_PLACES = 3
"""Decimal places of a share of rows, of which noise leaves fewer right."""

_LAST_KEY = 999_999_999
"""The greatest number of a neutral key."""

_NEUTRAL_KEYS = f"KEY{{000000001..{_LAST_KEY}}}"

Keys = dict[str, Any]
Noise = DiscreteLaplace | DiscreteGaussian


@dataclass(frozen=True)
class DomainPlan:
    """The queries of a measurement and their noise, made of the declared outlines alone.

    ``leak`` is the probability, for each attribute, that values are released which only one unit
    holds; 0 without categories.
    """

    attributes: Mapping[str, types.AnyAttribute]
    neighbours: Neighbours
    noise: Noise
    leak: Fraction

    @property
    def threshold(self) -> int:
        """The least noisy count, in rows, of a part that is taken to hold values."""
        return self.noise.reach(
            self.neighbours.partition, _MISTAKES / raw_columns.LARGEST_PARTITION
        )

    @property
    def histogram(self) -> SparseHistogram:
        """The mechanism for categories; its threshold hides values that only one unit holds."""
        return SparseHistogram(self.noise, self.leak)

    @property
    def values_threshold(self) -> int | None:
        """The least noisy count, in rows, of a value that is released; None without categories."""
        return self.histogram.threshold(self.neighbours.partition) if self.leak else None

    @property
    def parts(self) -> dict[str, Event]:
        """The spend on the number of rows, on bounds and on categories, where there is any."""
        return _parts(self.attributes, self.neighbours, self.noise, self.leak)

    @property
    def event(self) -> Composed:
        """Everything that is spent."""
        return compose(*self.parts.values())


@dataclass(frozen=True)
class Findings:
    """The released findings: the noisy number of rows, and the keys of each attribute.

    Keys are those of a spec, except for provenance. ``empty`` names attributes of which nothing
    reached a threshold; their keys are placeholders.
    """

    rows: int
    attributes: Mapping[str, Keys]
    empty: tuple[str, ...]


def attribute_outline(attribute: types.AnyAttribute) -> types.AnyAttribute:
    """The facts that a measurement may use of an attribute.

    Its type, the words of a boolean, its dtype and format, and whether its list is of numbers.
    """
    dtype = _dtype(attribute.dtype, nullable=False) if attribute.dtype else None
    keys = {"type": attribute.type, "dtype": dtype, "provenance": types.DATA_DERIVED}
    return type(attribute).model_validate(keys | _stand_in(attribute) | _format(attribute))


def plan_domains(
    attributes: Mapping[str, types.AnyAttribute],
    neighbours: Neighbours,
    epsilon: Fraction,
    delta: Fraction,
) -> DomainPlan:
    """The (epsilon, delta)-private plan with the lower threshold, by Laplace or Gaussian noise.

    Half of delta is for values that only one unit holds, if there are categories.

    Errors: PlanError if no noise is enough.
    """
    categories = sum(isinstance(attribute, types.Categorical) for attribute in attributes.values())
    leak = delta / (2 * categories) if categories else Fraction(0)
    plans = []
    for kind in (_laplace, DiscreteGaussian):
        event_at = partial(_event_at, attributes, neighbours, kind, leak)
        level = calibrate(event_at, epsilon, delta, neighbours.relation)
        plans.append(DomainPlan(attributes, neighbours, kind(level), leak))
    return min(plans, key=lambda plan: plan.threshold)


def require_enough(plan: DomainPlan, rows: int) -> None:
    """Check that thresholds lie below a public number of rows.

    Errors: PlanError if nothing could be found.
    """
    highest = max(plan.threshold, plan.values_threshold or 0)
    if highest >= rows:
        raise PlanError(
            f"a bound or value would need {highest} rows to be found and the spec declares {rows}; "
            "allow a larger epsilon, or declare more attributes public"
        )


def discover(
    private: raw_columns.ColumnsDoor, plan: DomainPlan, advanced: Callable[[int, int], None]
) -> Findings:
    """Run all planned queries.

    ``advanced`` is called with the number of attributes done, and of all.
    """
    rows = max(1, private.answer(raw_columns.RowCount(), plan.noise, "rows"))
    keys_by_name: dict[str, Keys] = {}
    empty = []
    for position, (name, attribute) in enumerate(plan.attributes.items()):
        keys = _keys_of(private, plan, name, attribute, rows)
        if keys is None:
            empty.append(name)
        keys_by_name[name] = keys or {"type": attribute.type, **_stand_in(attribute)}
        advanced(position + 1, len(plan.attributes))
    return Findings(rows, keys_by_name, tuple(empty))


def buckets_of(name: str, attribute: types.AnyAttribute) -> tuple[raw_columns.Buckets, ...]:
    """The public partitions by which an attribute is measured; none for categories."""
    if isinstance(attribute, types.Boolean | types.TextKey):
        return (raw_columns.Presence(name, attribute),)
    if isinstance(attribute, types.Date):
        return (raw_columns.Line(name, attribute),)
    if isinstance(attribute, types.Integer | types.Float | types.Datetime):
        return raw_columns.Line(name, attribute), raw_columns.Fineness(name, attribute)
    return ()


def _laplace(noise: Fraction) -> DiscreteLaplace:
    return DiscreteLaplace(1 / noise)


def _event_at(
    attributes: Mapping[str, types.AnyAttribute],
    neighbours: Neighbours,
    kind: Callable[[Fraction], Noise],
    leak: Fraction,
    level: Fraction,
) -> Event:
    return compose(*_parts(attributes, neighbours, kind(level), leak).values())


def _parts(
    attributes: Mapping[str, types.AnyAttribute],
    neighbours: Neighbours,
    noise: Noise,
    leak: Fraction,
) -> dict[str, Event]:
    partitions = sum(len(buckets_of(name, attribute)) for name, attribute in attributes.items())
    categories = sum(isinstance(attribute, types.Categorical) for attribute in attributes.values())
    counts = noise.event(neighbours.partition)
    rows = noise.event(raw_columns.RowCount().sensitivity(neighbours))
    parts = {"rows": rows, "bounds": repeat(counts, partitions)}
    if categories:
        parts["categories"] = repeat(
            SparseHistogram(noise, leak).event(neighbours.partition), categories
        )
    return {name: event for name, event in parts.items() if event != Composed(())}


def _keys_of(
    private: raw_columns.ColumnsDoor,
    plan: DomainPlan,
    name: str,
    attribute: types.AnyAttribute,
    rows: int,
) -> Keys | None:
    """The keys of one attribute; None if nothing reached its threshold."""
    if isinstance(attribute, types.Categorical):
        query = raw_columns.TextCounts(name, attribute)
        numbers, counts = private.answer(query, plan.histogram, name)
        words = private.words(name, attribute, numbers)
        values = dict(zip(words, counts.tolist(), strict=True))
        return (
            _listed(attribute, values, nullable=rows - sum(values.values()) >= plan.threshold)
            if values
            else None
        )
    noisy = [
        private.answer(raw_columns.BucketCounts(buckets), plan.noise, name)
        for buckets in buckets_of(name, attribute)
    ]
    nullable = bool(noisy[0][buckets_of(name, attribute)[0].missing] >= plan.threshold)
    if isinstance(attribute, types.Boolean | types.TextKey):
        return _worded(attribute, nullable) | _gaps(attribute, nullable, noisy[0])
    return _bounded(raw_columns.Line(name, attribute), noisy, plan.threshold, rows, nullable)


def _listed(attribute: types.Categorical, values: Mapping[str, int], nullable: bool) -> Keys:
    if holds_numbers(attribute):
        number = type(_zero(attribute))
        return _keys(attribute, {"values": sorted(number(text) for text in values)}, nullable)
    return _keys(attribute, {"values": sorted(values)}, nullable)


def _zero(attribute: types.Categorical | types.Ordinal) -> int | float:
    """Zero, as a number of the kind that an attribute lists."""
    return 0 if all(isinstance(value, int) for value in attribute.values) else 0.0


def _worded(attribute: types.Boolean | types.TextKey, nullable: bool) -> Keys:
    if isinstance(attribute, types.TextKey):
        return _keys(attribute, {"pattern": _neutral_keys(attribute)}, nullable)
    return _keys(attribute, {"true": attribute.true, "false": attribute.false}, nullable)


def _gaps(attribute: types.Boolean | types.TextKey, nullable: bool, noisy: Integers) -> Keys:
    """The share of rows without a key, by the noisy counts of those with and without."""
    if not nullable or not isinstance(attribute, types.TextKey):
        return {}
    known, missing = max(0, int(noisy[0])), int(noisy[1])
    return {"missing_share": max(round(missing / (known + missing), _PLACES), 10**-_PLACES)}


def _bounded(
    line: raw_columns.Line, noisy: list[Integers], threshold: int, rows: int, nullable: bool
) -> Keys | None:
    significant = np.flatnonzero(noisy[0][: line.missing] >= threshold)
    if not significant.size:
        return None
    low, high = line.span(int(significant[0]), int(significant[-1]))
    fineness = raw_columns.Fineness(line.name, line.attribute)
    grid = _grid(fineness, noisy[1], threshold) if len(noisy) > 1 else {}
    low, high, grid = representable(line.attribute, low, high, grid)
    if isinstance(line.attribute, types.Integer | types.Float):
        low, high, grid = _multiples(low, high, grid)
    bounds = {
        "min": raw_columns.value_of(line.attribute, low),
        "max": raw_columns.value_of(line.attribute, high),
    }
    massive = line.zero in significant and noisy[0][line.zero] > _POINT_MASS * rows
    return _keys(line.attribute, bounds | grid | ({"special": [0]} if massive else {}), nullable)


def _grid(fineness: raw_columns.Fineness, noisy: Integers, threshold: int) -> Keys:
    """The finest grid that enough values need; without any, the finest there is.

    Fractions of seconds are those of the format, which a person has confirmed.
    """
    significant = np.flatnonzero(noisy[: fineness.missing] >= threshold)
    if not fineness.steps:
        return _decimal_grid(significant)
    coarsest = (
        {"step": math.gcd(*(fineness.steps[part] for part in significant))}
        if significant.size
        else {}
    )
    declared = _step(fineness.attribute)
    return (
        declared
        if declared.get("step", 1) < 1
        else max(coarsest, declared, key=lambda k: k.get("step", 0))
    )


def _decimal_grid(significant: Integers) -> Keys:
    """The grid of floats that lie on some grids; none if some of them have more decimals."""
    if not significant.size or significant[-1] >= len(raw_columns.DECIMAL_GRIDS):
        return {}
    grids = [raw_columns.DECIMAL_GRIDS[part] for part in significant]
    decimals = grids[-1][0]
    step = math.gcd(*(units * 10 ** (decimals - places) for places, units in grids))
    return {"decimals": decimals, "step": round(step / 10**decimals, decimals)}


def _multiples(low: float, high: float, grid: Keys) -> tuple[float, float, Keys]:
    """The least and greatest multiple of a step in a range; all numbers if it has few of them."""
    rest = {key: value for key, value in grid.items() if key != "step"}
    step = Fraction(str(grid.get("step", 1)))
    first, last = math.ceil(Fraction(low) / step), math.floor(Fraction(high) / step)
    finest = step * 10 ** rest.get("decimals", 0) == 1
    if "step" not in grid or finest or last - first + 1 < _FEWEST_MULTIPLES:
        return low, high, rest
    number = type(low)
    return number(first * step), number(last * step), grid


def _keys(attribute: types.AnyAttribute, domain: Keys, nullable: bool) -> Keys:
    known = {"type": attribute.type, **domain, **_format(attribute)}
    keys = {**known, **({"nullable": True} if nullable else {})}
    return keys | ({"dtype": _dtype(attribute.dtype, nullable)} if attribute.dtype else {})


def _dtype(declared: str, nullable: bool) -> str:
    """The pandas dtype of the same width that can, or need not, hold missing values."""
    if not declared.lower().startswith(("int", "uint")):
        return declared
    return (
        declared.lower().replace("u", "U").replace("int", "Int") if nullable else declared.lower()
    )


def _neutral_keys(attribute: types.TextKey) -> str:
    """A pattern that says nothing of the data, in the dtype that was confirmed."""
    if attribute.dtype is None or "int" not in attribute.dtype.lower():
        return _NEUTRAL_KEYS
    return f"{{1..{min(_LAST_KEY, np.iinfo(attribute.dtype.lower()).max)}}}"


def _format(attribute: types.AnyAttribute) -> Keys:
    """The keys that say how cells are written."""
    keys = ("missing", "format", "partial")
    return {key: value for key in keys if (value := getattr(attribute, key, None)) is not None}


def _step(attribute: types.AnyAttribute) -> Keys:
    """The least step of moments that a declared format can write."""
    form = attribute.format if isinstance(attribute, types.Datetime) else None
    return {"step": in_seconds(written_micros(form))} if form else {}


def _stand_in(attribute: types.AnyAttribute) -> Keys:
    """The keys of a domain that shows nothing but its kind."""
    if isinstance(attribute, types.Categorical | types.Ordinal):
        return {"values": [_zero(attribute) if holds_numbers(attribute) else "none"]}
    if isinstance(attribute, types.Boolean):
        return {"true": attribute.true, "false": attribute.false}
    if isinstance(attribute, types.TextKey):
        return {"pattern": _neutral_keys(attribute)}
    nothing = raw_columns.value_of(attribute, 0)
    return {"min": nothing, "max": nothing, **_step(attribute)}
