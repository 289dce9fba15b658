"""Rules on what a spec says of its source: formats that can be read back, columns left out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cloister.errors import CloisterError, SpecError
from cloister.schema.attributes import AnyAttribute, Boolean, Categorical, Ordinal, TextKey
from cloister.schema.domain import column_of
from cloister.schema.sources.files.encodings import can_encode
from cloister.schema.sources.urls import HIDE_IT, holds_password
from cloister.schema.spec import PersonUnit, Spec
from cloister.schema.spec_files.marked_yaml import Key
from cloister.schema.spec_files.problems import BrokenRules
from cloister.schema.values.codelists import resolve_values
from cloister.schema.values.number_formats import groups_thousands


def source_rules(spec: Spec) -> BrokenRules:
    """The keys and the sentence of each rule that source, formats and ``ignore`` break."""
    yield from _ignore_rules(spec)
    if spec.source.url and holds_password(spec.source.url):
        yield ("source", "url"), HIDE_IT
    encoding = spec.source.encoding
    if not all(can_encode(text, encoding) for text in spec.source.missing):
        yield ("source", "missing"), f"has letters that are not in {encoding}; correct it"
    for name, attribute in spec.attributes.items():
        place: tuple[Key, ...] = ("attributes", name)
        grouped = groups_thousands(getattr(attribute, "format", None) or "")
        if grouped and not spec.source.thousands:
            yield (*place, "format"), "groups thousands; declare source.thousands, their mark"
        if attribute.missing is not None and attribute.missing not in spec.source.missing:
            yield (*place, "missing"), "is none of source.missing; add it there, or take one of it"
        if not all(can_encode(text, encoding) for text in _texts(name, attribute, spec)):
            yield place, f"has letters that are not in {encoding}; declare another encoding"
        if attribute.dtype is not None and not _holds_its_values(name, attribute, spec):
            yield (*place, "dtype"), "cannot hold all declared values; leave it out, or widen it"


def _holds_its_values(name: str, attribute: AnyAttribute, spec: Spec) -> bool:
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
    for at, name in enumerate(spec.ignore):
        if name in spec.attributes:
            yield ("ignore", at), "is declared under attributes too; leave it out of one of them"
    unit = spec.privacy.unit
    if isinstance(unit, PersonUnit) and unit.key in ignored:
        yield ("privacy", "unit", "key"), "is left out by ignore; declare it under attributes"
    for name in ignored & set(spec.evaluation.targets):
        yield ("evaluation", "targets", name), "is left out by ignore; declare it under attributes"


def _texts(name: str, attribute: AnyAttribute, spec: Spec) -> Iterator[str]:
    """Every text of a column that a CSV file holds beside numbers."""
    yield name
    if isinstance(attribute, Boolean):
        yield from (attribute.true, attribute.false)
    if isinstance(attribute, TextKey):
        yield attribute.pattern
    if isinstance(attribute, Categorical | Ordinal):
        try:
            yield from map(str, resolve_values(attribute.values, spec.folder))
        except SpecError:
            return
    yield getattr(attribute, "format", None) or ""
