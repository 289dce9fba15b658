"""Pydantic's errors about a spec, as sentences with a line, a rule and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cloister.schema import attributes, declarations, spec
from cloister.schema.spec_files.yaml_text import Key, Marked, SpecProblem

BrokenRules = Iterator[tuple[tuple[Key, ...], str]]
"""The keys and the sentence of each rule that a spec breaks."""

ATTRIBUTE_TYPES: dict[str, type[attributes.Attribute]] = {
    "categorical": attributes.Categorical,
    "ordinal": attributes.Ordinal,
    "boolean": attributes.Boolean,
    "integer": attributes.Integer,
    "float": attributes.Float,
    "date": attributes.Date,
    "datetime": attributes.Datetime,
    "text": attributes.TextKey,
}

_Sections = dict[tuple[Key, ...], type[BaseModel]]

_SECTIONS: _Sections = {
    (): spec.Spec,
    ("about",): spec.About,
    ("source",): spec.SourceSpec,
    ("privacy",): spec.PrivacySpec,
    ("privacy", "rows"): spec.RowsSpec,
    ("privacy", "budget"): spec.BudgetSpec,
    ("release",): declarations.ReleaseSpec,
    ("release", "accept_reject"): declarations.AcceptRejectSpec,
    ("release", "acceptance"): declarations.AcceptanceSpec,
    ("evaluation",): spec.EvaluationSpec,
    ("validation",): spec.ValidationSpec,
}

_EXAMPLES = {
    "name": "name: adult",
    "about": "about: {curator: Statistics Office, contact: data@office.example}",
    "curator_type": "curator_type: government",
    "source": "source: {path: data/raw/adult.csv}",
    "missing": 'missing: ["", "NA"]',
    "delimiter": 'delimiter: ";"',
    "encoding": "encoding: latin-1",
    "decimal": 'decimal: ","',
    "thousands": 'thousands: "."',
    "ignore": "ignore: [remarks]",
    "unconfirmed": "unconfirmed: [types], or delete the line to confirm all",
    "privacy": "privacy: {unit: row, relation: add_remove, rows: {public: 1000}, budget: {...}}",
    "unit": "unit: row",
    "relation": "relation: add_remove",
    "rows": "rows: {public: 1000}",
    "public": "public: 1000",
    "budget": "budget: {epsilon: 10, delta: 1e-6, per: year}",
    "per": "per: year",
    "epsilon": "epsilon: 1",
    "delta": "delta: 1e-6",
    "attributes": "attributes: {age: {type: integer, min: 0, max: 120}}",
    "type": "type: integer",
    "values": "values: [red, green]",
    "hierarchy": "hierarchy: [1, 3]",
    "min": "min: 0",
    "max": "max: 100",
    "pattern": "pattern: R{0001..9999}",
    "file": "file: codes/zip.txt",
    "check": "check: t.left is missing exactly if t.status = 'active'",
    "partial": "partial: missing",
    "rounded": "rounded: [100, 10]",
    "max_rows": "max_rows: 5",
    "order": "order: admitted",
    "block": "block: {column: admitted, per: month}",
    "group": "group: {key: patient, max_rows: 5}",
    "sampling": "sampling: sequential",
    "resample": "resample: 0.1",
    "tries": "tries: 300",
    "release": "release: {epsilon: 1, delta: 1e-6}",
    "true": 'true: "yes"',
    "false": 'false: "no"',
}

_SHAPES = {
    "values": "is a list of texts or numbers, or {file: codes/zip.txt}, "
    "or {pattern: 'zip{501..99950}'}; write one",
    "hierarchy": "is a list of lengths of prefixes, such as [1, 3], or {file: codes/tree.csv} with "
    "one CODE,PARENT a line, or {parents: {A01: A, A02: A}}; write one",
    "unit": "is row, or {key: ATTRIBUTE, max_rows: NUMBER, persons: {public: NUMBER}}, persons if "
    "wanted; write one of them",
    "targets": "is a list of positive values, or {above: NUMBER}; write one of them",
    "soft": "is true or false, or {weight: NUMBER}, or {rate: 1 %, provenance: SOURCE}: a weight "
    "of at least 0, a rate above 0 and up to 100 %, a source not the data; write one of them",
    "accept_reject": "is {tries: NUMBER}, from 1 to 10000; write for example {tries: 300}",
    "above": "is a number, or a date as text; write one of them",
}


@dataclass(frozen=True)
class _Forms:
    """The model of each section of a document, by the keys that lead to it, and examples."""

    sections: _Sections
    examples: dict[str, str]

    def remedy(self, name: str) -> str:
        """An example of a key, if there is one."""
        return f"; write for example {self.examples[name]}" if name in self.examples else ""


def problems_of(
    error: ValidationError,
    document: Marked,
    within: tuple[Key, ...] = (),
    section: type[BaseModel] = spec.Spec,
) -> list[SpecProblem]:
    """The problems behind a validation error, without repetitions.

    The error is of a ``section`` of the document, to which the keys ``within`` lead.
    """
    examples = {
        name: f"{name}: {field.examples[0]}"
        for name, field in section.model_fields.items()
        if field.examples
    }
    forms = _Forms(_SECTIONS | {within: section}, _EXAMPLES | examples)
    errors = error.errors(include_url=False)
    return list(dict.fromkeys(_problem(details, document, within, forms) for details in errors))


NUMERIC = ("integer", "float", "date", "datetime")
"""Types of attributes that are numbers or moments, by which rows can be ordered."""


def order_problem(
    order: str, declared: Mapping[str, attributes.AnyAttribute], most: int
) -> str | None:
    """What keeps an attribute from ordering up to ``most`` rows of a unit; None if nothing does."""
    if order not in declared:
        return f"is no attribute; {closest(order, declared)}"
    if declared[order].per:
        return "is the same on all rows of a person; name an attribute of rows"
    if declared[order].type not in NUMERIC:
        return "has no order; name an attribute of type integer, float, date or datetime"
    if most == 1:
        return "orders several rows of a unit, and max_rows is 1; raise it, or leave order out"
    return None


def closest(word: str, known: Iterable[str]) -> str:
    """The remedy for an unknown word: the nearest known one, or the first twelve of all."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    more = ", ..." if len(names) > 12 else ""
    return f"use one of {', '.join(names[:12])}{more}"


def _problem(
    details: ErrorDetails, document: Marked, within: tuple[Key, ...], forms: _Forms
) -> SpecProblem:
    keys, inside_union = _place(details["type"], (*within, *details["loc"]), document.content)
    if inside_union:
        shape = (
            "targets"
            if keys[:2] == ("evaluation", "targets") and keys[-1] != "above"
            else str(keys[-1])
        )
        unknown = "matches no known form" + (forms.remedy(shape) or "; correct it")
        return document.problem(keys, _SHAPES.get(shape, unknown))
    return document.problem(keys, _sentence(details, keys, document.content, forms))


def _place(kind: str, loc: tuple[Key, ...], content: Any) -> tuple[tuple[Key, ...], bool]:
    """The keys that lead to an error in the document, and whether no form of a choice fits."""
    keys: list[Key] = []
    for part in loc:
        absent = kind in ("missing", "extra_forbidden") and part == loc[-1]
        if _holds(content, part):
            content = content[part]
            keys.append(part)
        elif absent and isinstance(content, dict):
            keys.append(part)
        elif part not in ATTRIBUTE_TYPES:
            return tuple(keys), True
    return tuple(keys), _is_choice(keys)


def _holds(content: Any, part: Key) -> bool:
    if isinstance(content, dict):
        return part in content
    return isinstance(content, list) and isinstance(part, int) and part < len(content)


def _is_choice(keys: Sequence[Key]) -> bool:
    """Whether the keys lead into a list of values, where any error is one of form."""
    return len(keys) > 2 and keys[-2] == "values" and isinstance(keys[-1], int)


def _sentence(details: ErrorDetails, keys: Sequence[Key], content: Any, forms: _Forms) -> str:
    kind, name = details["type"], str(keys[-1]) if keys else ""
    if keys[:1] == ("attributes",) and name == "per":
        return "is person, or is left out; write for example per: person"
    if kind == "extra_forbidden":
        return f"unknown key; {closest(name, _known_keys(keys[:-1], content, forms.sections))}"
    if kind == "union_tag_not_found":
        return f"the key 'type' is missing; {closest('', ATTRIBUTE_TYPES)}"
    if kind == "union_tag_invalid":
        return f"unknown type; {closest(str(details['ctx']['tag']), ATTRIBUTE_TYPES)}"
    if kind == "value_error":
        return str(details["ctx"]["error"]) + forms.remedy(name)
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return "should be a mapping of keys" + forms.remedy(name)
    if kind == "string_pattern_mismatch":
        return "has characters other than letters, digits, '.', '_' and '-'; rename it"
    rule = "is missing" if kind == "missing" else details["msg"].removeprefix("Input ")
    return rule + forms.remedy(name)


def _known_keys(keys: Sequence[Key], content: Any, sections: _Sections) -> list[str]:
    model = sections.get(tuple(keys))
    if keys[:1] == ("constraints",):
        model = declarations.ConstraintDeclaration
    if len(keys) == 2 and keys[0] == "attributes":
        model = ATTRIBUTE_TYPES[content["attributes"][keys[1]]["type"]]
    return list(model.model_fields) if model else []
