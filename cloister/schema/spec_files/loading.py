"""Spec files: read, checked as a whole, digested."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from cloister.errors import SpecError, StorageError
from cloister.schema.attributes import Categorical, Ordinal, ValuesFile
from cloister.schema.sources.files.small_files import read_small_file, reason_of
from cloister.schema.spec import Spec
from cloister.schema.spec_files.marked_yaml import Marked, read_marked, spec_error
from cloister.schema.spec_files.problems import problems_of
from cloister.schema.spec_files.rules import broken_rules
from cloister.schema.values.codelists import MOST_VALUES_BYTES


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


def spec_digest(spec: Spec) -> str:
    """SHA-256, as hex, of the spec's canonical JSON and of the value and constraint files it names.

    Keys at their defaults are left out, so that a later version, which knows more keys, computes
    the same digest. ``unconfirmed`` is left out: nothing is charged while it lists anything.
    """
    files = {name: _file_digest(spec.folder / name) for name in sorted(set(_files_of(spec)))}
    content = spec.model_dump(mode="json", exclude={"unconfirmed"}, exclude_defaults=True)
    canonical = {"spec": content, "files": files}
    text = json.dumps(
        canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


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
            if isinstance(attribute, Categorical | Ordinal) and isinstance(
                attribute.values, ValuesFile
            ):
                yield attribute.values.file
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
