"""Spec files: read, checked as a whole, digested; and where their declarations come from.

That a cited source is true cannot be checked here; that none is given can be asked about. What was
read from the data, and neither confirmed by a person nor measured, may be decided by one row: a
single ``?`` is a text for missing values, one word turns integers into a category.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from cloister import former_names
from cloister.errors import SpecError, StorageError
from cloister.schema import attributes
from cloister.schema.codelists import MOST_VALUES_BYTES
from cloister.schema.declarations import ConstraintDeclaration, Exact
from cloister.schema.sources.files_and_urls import read_small_file, reason_of
from cloister.schema.spec import Spec
from cloister.schema.spec_files.problems import problems_of
from cloister.schema.spec_files.rules import broken_rules
from cloister.schema.spec_files.yaml_text import Key, Marked, read_marked, spec_error


def load_spec(path: Path) -> Spec:
    """The spec in a YAML file.

    Raises:
        StorageError: the file cannot be read.
        SpecError: one message that lists every problem with file, line, keys, rule and remedy.
    """
    document = read_marked(path)
    spec = _parsed(path, document)
    broken = [document.problem(keys, text) for keys, text in broken_rules(spec)]
    if broken:
        raise spec_error(path, broken)
    return spec


def anchored(content: Any, place: Callable[[str], str]) -> Any:
    """The JSON values of a spec, with the files that it names, of values or rules, elsewhere."""
    if isinstance(content, dict):
        return {
            key: place(value)
            if key == "file" and isinstance(value, str)
            else anchored(value, place)
            for key, value in content.items()
        }
    return [anchored(value, place) for value in content] if isinstance(content, list) else content


def spec_digest(spec: Spec) -> str:
    """SHA-256, as hex, of the spec's canonical JSON and of the value and constraint files it names.

    Keys at their defaults are left out, so that a later version, which knows more keys, computes
    the same digest. ``unconfirmed`` is left out: nothing is charged while it lists anything.
    """
    files = {name: _file_digest(spec.folder / name) for name in sorted(set(_files_of(spec)))}
    content = spec.model_dump(mode="json", exclude={"unconfirmed"}, exclude_defaults=True)
    if (key := spec.release.options_key) in former_names.OPTIONS:
        content["release"][key] = _as_digested(key, content["release"].pop("options"))
    canonical = {"spec": content, "files": files}
    text = json.dumps(
        canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


_VALUE: TypeAdapter[Any] = TypeAdapter(
    Annotated[int | list[int] | Any, Field(union_mode="left_to_right")]
)
_EXACT: TypeAdapter[Any] = TypeAdapter(Annotated[Exact | Any, Field(union_mode="left_to_right")])


def _as_digested(key: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under a former key as digests have them: numbers as such, without the defaults."""
    values = {
        name: (_EXACT if name in former_names.EXACT_OPTIONS else _VALUE).validate_python(value)
        for name, value in options.items()
        if value is not None
    }
    defaults = former_names.OPTIONS[key]
    return {
        name: str(value) if isinstance(value, Fraction) else value
        for name, value in values.items()
        if value != defaults.get(name)
    }


def data_derived(spec: Spec) -> list[str]:
    """Names of the attributes with bounds from the data that no person has declared public."""
    return [
        name
        for part in spec.parts.values()
        for name, attribute in part.attributes.items()
        if attribute.data_derived
    ]


def _parsed(path: Path, document: Marked) -> Spec:
    try:
        return Spec.declared_in(path.parent, document.content)
    except ValidationError as error:
        raise spec_error(path, problems_of(error, document)) from None
    except TypeError:
        raise SpecError(
            f"{path}: bounds with and without a time zone are mixed; write both the same way"
        ) from None


def _files_of(spec: Spec) -> Iterator[str]:
    for part in spec.parts.values():
        for attribute in part.attributes.values():
            if isinstance(attribute, attributes.Categorical | attributes.Ordinal) and isinstance(
                attribute.values, attributes.ValuesFile
            ):
                yield attribute.values.file
            if isinstance(tree := getattr(attribute, "hierarchy", None), attributes.ParentsFile):
                yield tree.file
        for declaration in part.constraints:
            if declaration.file is not None:
                yield declaration.file


def _file_digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_small_file(path, MOST_VALUES_BYTES)).hexdigest()
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read ({reason_of(error)}); correct its path in the spec"
        ) from None


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
    "keys": "keys, and references with their max_rows",
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
    return [*_unknown_rows(spec), *_unknown_domains(spec), *_derived_constraints(spec)]


def _unknown_rows(spec: Spec) -> Iterator[UnconfirmedFact]:
    text = "the number of rows is not known; declare it, {public: NUMBER}"
    if spec.privacy.rows.measured:
        yield ("privacy", "rows"), text + _or_measured(spec, ", or have it measured")
    for name, table in spec.tables.items():
        if table.rows is not None and table.rows.measured:
            yield ("tables", name, "rows"), text


def _unknown_domains(spec: Spec) -> Iterator[UnconfirmedFact]:
    for name, part in spec.parts.items():
        if marked := data_derived(part):
            text = (
                f"{_named(marked)} are marked data-derived; declare public what is known without "
                "the data: correct the line, and write in provenance where it is known from"
            )
            measure = _or_measured(spec, "; have the rest measured")
            yield (*spec.keys_of(name), "attributes"), text + measure


def _or_measured(spec: Spec, words: str) -> str:
    """That what is not known may be measured instead, which is done for one table alone."""
    return "" if spec.tables else f"{words}: cloister spec measure"


def _derived_constraints(spec: Spec) -> Iterator[UnconfirmedFact]:
    text = (
        "was proposed since all rows of the data agree with it, which is a fact of the data; write "
        "in provenance where the rule is known from, or delete it"
    )
    for keys, declared in _constraints_of(spec):
        if declared.data_derived:
            yield keys, text


def _constraints_of(spec: Spec) -> Iterator[tuple[tuple[Key, ...], ConstraintDeclaration]]:
    """All constraints with the keys that lead to them."""
    parts = {("tables", name): table.constraints for name, table in spec.tables.items()}
    for keys, declarations in ({(): spec.constraints} | parts).items():
        for number, declared in enumerate(declarations):
            yield (*keys, "constraints", number), declared


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMES_SHOWN]) + more


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
    """The names of attributes, numbers of rows and constraints, by the provenance they share."""
    names: dict[str, list[str]] = {}
    for name, provenance, _ in _declarations(spec):
        names.setdefault(provenance.strip(), []).append(name)
    return names


def uncited_declarations(spec: Spec) -> list[str]:
    """What declares bounds, a list, a number of rows or a rule, and names no source for it."""
    return [
        name
        for name, provenance, needed in _declarations(spec)
        if needed and not cites_a_source(provenance)
    ]


def cites_a_source(provenance: str) -> bool:
    """Whether a text may name a document: two words or more, not all of them empty of one."""
    words = re.findall(r"\w+", provenance.lower())
    return len(words) >= _FEWEST_WORDS and not _NO_SOURCE.issuperset(words)


def _has_domain(attribute: attributes.AnyAttribute) -> bool:
    """Whether something is declared of the values, or of how many are missing."""
    if isinstance(attribute, attributes.TextKey):
        return attribute.missing_share is not None
    return not isinstance(attribute, attributes.Boolean)


def _declarations(spec: Spec) -> Iterator[tuple[str, str, bool]]:
    """Names, their provenance, and whether there is a domain that needs one."""
    for table, part in spec.parts.items():
        for name, attribute in part.attributes.items():
            yield spec.naming(table) + name, attribute.provenance, _has_domain(attribute)
    yield "privacy.rows", spec.privacy.rows.provenance, True
    for table, declared in spec.tables.items():
        if declared.rows:
            yield f"{table}.rows", declared.rows.provenance, True
    for keys, rule in _constraints_of(spec):
        name = rule.name or Path(rule.file or f"constraint_{int(keys[-1]) + 1}").stem
        yield ".".join([*map(str, keys[1:-2]), name]), rule.provenance or "declared", True
