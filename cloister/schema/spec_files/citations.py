"""Where the declarations of a spec come from, for a person to judge.

That a source is true cannot be checked here; that none is given can be asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cloister.schema.attributes import AnyAttribute, Boolean, TextKey
from cloister.schema.spec import Spec

_FEWEST_WORDS = 2
"""Words of a citation at least: a document and a place in it, such as ``form 12``."""

_NO_SOURCE = frozenset(
    (
        *("a", "n", "all", "as", "bounds", "by", "column", "csv", "data", "dataset", "declared"),
        *("derived", "draft", "drafted", "file", "from", "guess", "guessed", "in", "inferred"),
        *("is", "it", "known", "max", "min", "my", "na", "no", "none", "not", "observed", "of"),
        *("our", "own", "public", "range", "read", "real", "sample", "seen", "source", "table"),
        *("taken", "tbd", "the", "these", "this", "to", "todo", "unknown", "value", "values"),
        *("was", "we", "were"),
    )
)
"""Words that name no source: a text of these alone is ``data-derived`` in other words."""


def citations_of(spec: Spec) -> dict[str, list[str]]:
    """The names of all attributes, and of numbers of rows, by the provenance they share."""
    found: dict[str, list[str]] = {}
    for name, provenance, _ in _declarations(spec):
        found.setdefault(provenance.strip(), []).append(name)
    return found


def uncited_declarations(spec: Spec) -> list[str]:
    """What declares bounds, a list or a number of rows, and names no source for it."""
    return [
        name
        for name, provenance, needed in _declarations(spec)
        if needed and not cites_a_source(provenance)
    ]


def cites_a_source(provenance: str) -> bool:
    """Whether a text may name a document: two words or more, not all of them empty of one."""
    words = re.findall(r"\w+", provenance.lower())
    return len(words) >= _FEWEST_WORDS and not _NO_SOURCE.issuperset(words)


def _has_domain(attribute: AnyAttribute) -> bool:
    """Whether something is declared of the values, or of how many are missing."""
    if isinstance(attribute, TextKey):
        return attribute.missing_share is not None
    return not isinstance(attribute, Boolean)


def _declarations(spec: Spec) -> Iterator[tuple[str, str, bool]]:
    """Names, their provenance, and whether there is a domain that needs one."""
    for table, part in spec.parts.items():
        before = f"{table}." if spec.tables else ""
        for name, attribute in part.attributes.items():
            yield before + name, attribute.provenance, _has_domain(attribute)
    yield "privacy.rows", spec.privacy.rows.provenance, True
    for table, declared in spec.tables.items():
        if declared.rows:
            yield f"{table}.rows", declared.rows.provenance, True
