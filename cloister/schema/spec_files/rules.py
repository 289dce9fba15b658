"""Rules on a whole spec, which pydantic cannot check part by part.

Those on its source: formats that can be read back, columns left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from cloister.errors import CloisterError, SpecError
from cloister.figures import count_of
from cloister.schema import attributes, codelists
from cloister.schema.domain import column_of
from cloister.schema.sources.files_and_urls import (
    HIDE_IT,
    PLAIN_URL,
    can_encode,
    holds_password,
    is_plain,
)
from cloister.schema.spec import Above, PersonUnit, Spec, TableUnit
from cloister.schema.spec_files.foreign_keys import broken_relations
from cloister.schema.spec_files.problems import NUMERIC, BrokenRules, closest, order_problem
from cloister.schema.spec_files.yaml_text import Key
from cloister.schema.ticks import float_decimals, stride_of, tick_of, ticks_per_unit
from cloister.schema.written_numbers import groups_thousands


def broken_rules(spec: Spec) -> BrokenRules:
    """The keys and the sentence of each rule that a spec breaks."""
    yield from _delta_rules(spec)
    if not spec.tables:
        yield from _rules_of_one(spec)
        yield from _unit_rules(spec)
        yield from _group_rules(spec)
        yield from _block_rules(spec)
        return
    for name in ("group", "block"):
        if getattr(spec.privacy, name):
            yield ("privacy", name), "is of one table, and the dataset has several; leave it out"
    for name in spec.tables:
        for keys, text in _rules_of_one(spec.table(name)):
            yield ("tables", name, *keys), text
    yield from broken_relations(spec)


def _rules_of_one(spec: Spec) -> BrokenRules:
    lists = [
        each.values
        for each in spec.attributes.values()
        if isinstance(each, attributes.Categorical | attributes.Ordinal)
    ]
    try:
        codelists.require_modest(lists, spec.folder)
    except SpecError as error:
        yield ("attributes",), str(error)
        return
    yield from source_rules(spec)
    for name, attribute in spec.attributes.items():
        yield from (
            (("attributes", name, *keys), text)
            for keys, text in _attribute_rules(name, attribute, spec)
        )
    yield from _person_rules(spec)
    for name, positive in spec.evaluation.targets.items():
        yield from (
            (("evaluation", "targets", name), text) for text in _target_rules(name, positive, spec)
        )


def _attribute_rules(name: str, attribute: attributes.AnyAttribute, spec: Spec) -> BrokenRules:
    if not name.strip():
        yield (), "an attribute has no name; name the column as the data does"
    if isinstance(attribute, attributes.Categorical | attributes.Ordinal):
        broken = [*_list_rules(attribute, spec)]
        yield from ((("values",), text) for text in broken)
        yield from () if broken else _tree_rules(name, attribute, spec)
    if isinstance(attribute, attributes.Boolean):
        yield from _boolean_rules(attribute, spec)
    if isinstance(attribute, attributes.Integer):
        yield from _whole_rules(attribute)
    if isinstance(attribute, attributes.Float) and _ticks(attribute) > attributes.LARGEST_WHOLE:
        yield (
            (),
            (
                "a bound has more than 18 digits with its decimals; narrow the bounds, "
                "or declare fewer decimals"
            ),
        )
    if isinstance(attribute, attributes.TextKey):
        yield from _pattern_rules(attribute)
    if isinstance(attribute, attributes.Integer | attributes.Float):
        yield from ((("rounded",), text) for text in _rounded_rules(attribute))


def _rounded_rules(attribute: attributes.Integer | attributes.Float) -> Iterator[str]:
    """Multiples are values of the grid, and few enough for each to be drawn."""
    unit = ticks_per_unit(attribute)
    for step in attribute.rounded:
        ticks = round(step * unit)
        if ticks <= 0 or not math.isclose(ticks, step * unit) or ticks % stride_of(attribute):
            yield f"{step} is no multiple of the step of the values; declare finer values, or omit"
        elif ticks == stride_of(attribute):
            yield f"all values are multiples of {step}; leave it out, or declare finer values"
        elif (attribute.max - attribute.min) / step > attributes.MOST_MULTIPLES:
            yield f"there are more than a million multiples of {step}; narrow the bounds"
    if attribute.rounded and tick_of(attribute, attribute.min) % stride_of(attribute):
        yield "min is no multiple of step, so that no value is round; correct one of them"


def _whole_rules(attribute: attributes.Integer) -> BrokenRules:
    if max(map(abs, (attribute.min, attribute.max, attribute.step))) > attributes.LARGEST_WHOLE:
        yield (), "a bound has more than 18 digits; use type float, or a text key"
    if any(abs(value) > attributes.LARGEST_WHOLE for value in attribute.special):
        yield ("special",), "a value has more than 18 digits; use type float, or a text key"


def _ticks(attribute: attributes.Float) -> float:
    """The greatest distance from zero of a declared number, in steps of the grid."""
    numbers = (attribute.min, attribute.max, *attribute.special)
    return max(map(abs, numbers)) * 10.0 ** float_decimals(attribute)


def _pattern_rules(attribute: attributes.TextKey) -> BrokenRules:
    match = codelists.NUMBERED_PATTERN.fullmatch(attribute.pattern)
    if match is None:
        yield ("pattern",), "needs one numbered range; write it like R{000001..999999}"
    elif max(len(match["first"]), len(match["last"])) > codelists.MOST_PATTERN_DIGITS:
        yield (
            ("pattern",),
            f"has a number of more than {codelists.MOST_PATTERN_DIGITS} digits; write shorter ones",
        )
    elif int(match["first"]) > int(match["last"]):
        yield ("pattern",), "ends before it starts; exchange the two numbers"


def _list_rules(
    attribute: attributes.Categorical | attributes.Ordinal, spec: Spec
) -> Iterator[str]:
    if isinstance(attribute.values, list):
        yield from _kind_rules(attribute.values)
    try:
        values = codelists.resolve_values(attribute.values, spec.folder)
    except SpecError as error:
        yield str(error)
        return
    if set(spec.source.missing).intersection(values):
        yield (
            "a listed value is a missing token too; leave it out, "
            "or set source.missing to other texts"
        )


def _tree_rules(name: str, attribute: attributes.AnyAttribute, spec: Spec) -> BrokenRules:
    try:
        column_of(name, attribute, spec.folder)
    except SpecError as error:
        yield ("hierarchy",), str(error)


def _kind_rules(values: list[attributes.Scalar]) -> Iterator[str]:
    if any(isinstance(value, bool) for value in values):
        yield "true and false are no listed values; put quotes around them, or use type boolean"
    elif len({isinstance(value, str) for value in values}) > 1:
        yield "the list mixes texts and numbers; put quotes around the numbers"


def _boolean_rules(attribute: attributes.Boolean, spec: Spec) -> BrokenRules:
    if attribute.true == attribute.false:
        yield ("true",), "true and false are the same word; give two words"
    if {attribute.true, attribute.false} & set(spec.source.missing):
        yield (), "one of the two words is a missing token too; set source.missing to other texts"


def _unit_rules(spec: Spec) -> BrokenRules:
    unit = spec.privacy.unit
    if isinstance(unit, TableUnit):
        yield ("privacy", "unit"), "names a table, and the dataset has one table only; write row"
    if isinstance(unit, PersonUnit) and unit.key not in {*spec.attributes, *spec.ignore}:
        yield ("privacy", "unit", "key"), f"is no attribute; {closest(unit.key, spec.attributes)}"


def _group_rules(spec: Spec) -> BrokenRules:
    """A group is of rows; exchanging rows one by one changes no number of rows."""
    privacy, group = spec.privacy, spec.privacy.group
    if group is None:
        return
    if privacy.unit != "row":
        yield ("privacy", "group"), "is of rows; leave it out, or write unit: row"
    if privacy.relation != "add_remove":
        yield (
            ("privacy", "group"),
            (
                "needs relation add_remove: an exchange keeps the number of rows, which differs "
                "between persons; declare the group as the unit"
            ),
        )
    key = spec.attributes.get(group.key)
    if key is None:
        yield ("privacy", "group", "key"), f"is no attribute; {closest(group.key, spec.attributes)}"
    elif key.nullable:
        yield (
            ("privacy", "group", "key"),
            "is nullable, and each row needs a person; declare it not",
        )


def _block_rules(spec: Spec) -> BrokenRules:
    """Blocks are of one date that every row has; a row exchanged may be of two blocks."""
    block, relation = spec.privacy.block, spec.privacy.relation
    if block is None:
        return
    if relation != "add_remove":
        yield (
            ("privacy", "block"),
            (
                "needs relation add_remove: a row that is exchanged may go from one block to "
                "another, and the number of rows of neither is then as it was"
            ),
        )
    column = spec.attributes.get(block.column)
    if column is None:
        near = closest(block.column, spec.attributes)
        yield ("privacy", "block", "column"), f"is no attribute; {near}"
    elif not isinstance(column, attributes.Date | attributes.Datetime):
        yield ("privacy", "block", "column"), "is no date; name an attribute of type date, datetime"
    elif column.nullable:
        yield ("privacy", "block", "column"), "is nullable, and a row without a date is in no block"


def _person_rules(spec: Spec) -> BrokenRules:
    """What is said of persons needs a key of persons, which is a text key."""
    unit, per_person = (
        spec.privacy.unit,
        [name for name, each in spec.attributes.items() if each.per],
    )
    if not isinstance(unit, PersonUnit):
        for name in per_person:
            yield (
                ("attributes", name, "per"),
                (
                    "there are no persons here; set privacy.unit to "
                    "{key: COLUMN, max_rows: NUMBER}, or leave it out"
                ),
            )
        return
    if unit.key in per_person:
        yield ("attributes", unit.key, "per"), "is the key of persons itself; leave it out"
    key = spec.attributes.get(unit.key)
    problem = unit.order and order_problem(unit.order, spec.attributes, unit.max_rows)
    if problem:
        yield ("privacy", "unit", "order"), problem
    of_persons = per_person or unit.persons or (unit.order and not problem)
    if of_persons and key is not None and not isinstance(key, attributes.TextKey):
        yield (
            ("attributes", unit.key, "type"),
            "persons need a text key; write {type: text, pattern: 'P{0001..9999}'}",
        )
    rows, persons = spec.privacy.rows.public, unit.declared_persons
    if rows is not None and persons is not None and persons > rows:
        yield (
            ("privacy", "unit", "persons"),
            f"are more than the {rows} rows, and each has one at least; correct one of them",
        )


def _delta_rules(spec: Spec) -> BrokenRules:
    rows = spec.privacy.rows.public
    if rows is None:
        return
    for keys, delta in (
        (("release",), spec.release.delta),
        (("privacy", "budget"), spec.privacy.budget.delta),
    ):
        if delta >= Fraction(1, rows):
            yield (
                (*keys, "delta"),
                f"should be less than 1 / rows = 1 / {rows}; write a smaller delta",
            )


def _target_rules(
    name: str, positive: list[attributes.Scalar] | Above, spec: Spec
) -> Iterator[str]:
    attribute = spec.attributes.get(name)
    if attribute is None:
        if name not in spec.ignore:
            yield f"is no attribute; {closest(name, spec.attributes)}"
    elif isinstance(attribute, attributes.TextKey):
        yield "is a text key, which has no meaning to predict; leave it out"
    elif isinstance(positive, Above) != (attribute.type in NUMERIC):
        yield (
            "needs {above: NUMBER} if the attribute is numeric, and a list of values if not; "
            "exchange the form"
        )
    elif isinstance(positive, list):
        yield from _positive_rules(positive, attribute, spec)


def _positive_rules(
    positive: list[attributes.Scalar], attribute: attributes.AnyAttribute, spec: Spec
) -> Iterator[str]:
    try:
        unlisted = set(map(str, positive)) - _listed(attribute, spec)
    except SpecError:
        return
    if unlisted:
        number = count_of(len(unlisted), "value")
        yield f"names {number} that the attribute does not list; use listed values"
    elif not positive:
        yield "is empty; name at least one value"


def _listed(attribute: attributes.AnyAttribute, spec: Spec) -> set[str]:
    if isinstance(attribute, attributes.Categorical | attributes.Ordinal):
        return set(map(str, codelists.resolve_values(attribute.values, spec.folder)))
    return {attribute.true, attribute.false} if isinstance(attribute, attributes.Boolean) else set()


def _url_rules(url: str, object_url: str) -> BrokenRules:
    if holds_password(url):
        yield ("source", "url"), HIDE_IT
    if object_url.startswith("file:"):
        yield ("source", "path"), "is a URL of a file; write its path"
    elif "://" in object_url and not is_plain(object_url):
        yield ("source", "path"), PLAIN_URL


def source_rules(spec: Spec) -> BrokenRules:
    """The keys and the sentence of each rule that source, formats and ``ignore`` break."""
    yield from _ignore_rules(spec)
    yield from _url_rules(spec.source.url or "", spec.source.path or "")
    encoding = spec.source.encoding
    if not all(can_encode(text, encoding) for text in spec.source.missing):
        yield ("source", "missing"), f"has letters that are not in {encoding}; correct it"
    for name, attribute in spec.attributes.items():
        path: tuple[Key, ...] = ("attributes", name)
        grouped = groups_thousands(getattr(attribute, "format", None) or "")
        if grouped and not spec.source.thousands:
            yield (*path, "format"), "groups thousands; declare source.thousands, their mark"
        if attribute.missing is not None and attribute.missing not in spec.source.missing:
            yield (*path, "missing"), "is none of source.missing; add it there, or take one of it"
        if not all(can_encode(text, encoding) for text in _texts(name, attribute, spec)):
            yield path, f"has letters that are not in {encoding}; declare another encoding"
        if attribute.dtype is not None and not _holds_its_values(name, attribute, spec):
            yield (*path, "dtype"), "cannot hold all declared values; leave it out, or widen it"


def _holds_its_values(name: str, attribute: attributes.AnyAttribute, spec: Spec) -> bool:
    """Whether the dtype of the column keeps its first two, last, special and missing values."""
    try:
        column = column_of(name, attribute, spec.folder)
        special = range(getattr(column, "steps", column.values), column.values)
        codes = np.unique(
            [0, min(1, column.values - 1), *special, column.values - 1, column.size - 1]
        )
        return bool((column.encode(column.decode(codes)) == codes).all())
    except CloisterError:
        return True
    except (TypeError, ValueError, OverflowError):
        return False


def _ignore_rules(spec: Spec) -> BrokenRules:
    """Nothing that is left out is used; constraints are checked where they are read."""
    ignored = set(spec.ignore)
    for index, name in enumerate(spec.ignore):
        if name in spec.attributes:
            yield ("ignore", index), "is declared under attributes too; leave it out of one of them"
    unit = spec.privacy.unit
    if isinstance(unit, PersonUnit) and unit.key in ignored:
        yield ("privacy", "unit", "key"), "is left out by ignore; declare it under attributes"
    for name in ignored & set(spec.evaluation.targets):
        yield ("evaluation", "targets", name), "is left out by ignore; declare it under attributes"


def _texts(name: str, attribute: attributes.AnyAttribute, spec: Spec) -> Iterator[str]:
    """Every text of a column that a CSV file holds beside numbers."""
    yield name
    if isinstance(attribute, attributes.Boolean):
        yield from (attribute.true, attribute.false)
    if isinstance(attribute, attributes.TextKey):
        yield attribute.pattern
    if isinstance(attribute, attributes.Categorical | attributes.Ordinal):
        try:
            yield from map(str, codelists.resolve_values(attribute.values, spec.folder))
        except SpecError:
            return
    yield getattr(attribute, "format", None) or ""
