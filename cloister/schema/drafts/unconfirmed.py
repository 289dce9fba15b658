"""What in a spec was read from the data, and neither confirmed by a person nor measured.

One row can decide any of it: a single ``?`` is a text for missing values, one word turns integers
into a category.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import data_derived
from cloister.schema.spec_files.marked_yaml import Key

UnconfirmedFact = tuple[tuple[Key, ...], str]
"""The keys that lead to a fact of a spec, and a sentence with the remedy."""

_NAMES_SHOWN = 10
"""Attributes that a message names, about two lines of it; the rest are counted."""

_FACTS = {
    "names": "names of columns",
    "encoding": "source.encoding",
    "delimiter": "source.delimiter",
    "numbers": "source.decimal and source.thousands",
    "missing": "source.missing and missing of attributes",
    "ignore": "columns to ignore",
    "types": "types of attributes with their dtypes, formats and words of booleans",
}


def unconfirmed_facts(spec: Spec) -> list[UnconfirmedFact]:
    """What neither a release nor a measurement may take as declared."""
    if not spec.unconfirmed:
        return []
    facts = ", ".join(_FACTS[fact] for fact in dict.fromkeys(spec.unconfirmed))
    text = (
        f"{facts} were read from the data, and one row may have decided them; read them through, "
        "correct them to what is known without the data, then delete the word here, or the whole "
        "line to confirm all"
    )
    return [(("unconfirmed",), text)]


def unmeasured_facts(spec: Spec) -> list[UnconfirmedFact]:
    """What a release may not take as declared; of one table, a measurement finds it out."""
    return [*_unknown_rows(spec), *_unknown_domains(spec)]


def _unknown_rows(spec: Spec) -> Iterator[UnconfirmedFact]:
    measure = "" if spec.tables else ", or have it measured: cloister spec measure"
    text = f"the number of rows is not known; declare it, {{public: NUMBER}}{measure}"
    if spec.privacy.rows.measured:
        yield ("privacy", "rows"), text
    for name, table in spec.tables.items():
        if table.rows is not None and table.rows.measured:
            yield ("tables", name, "rows"), text


def _unknown_domains(spec: Spec) -> Iterator[UnconfirmedFact]:
    measure = "" if spec.tables else "; have the rest measured: cloister spec measure"
    for name, part in spec.parts.items():
        if marked := data_derived(part):
            place = ("tables", name, "attributes") if spec.tables else ("attributes",)
            text = (
                f"{_named(marked)} are marked data-derived; declare public what is known without "
                "the data: correct the line, and write in provenance where it is known from"
            )
            yield place, text + measure


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMES_SHOWN]) + more
