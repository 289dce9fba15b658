"""Fitted models on disk, without pickle: JSON and arrays, all that sampling needs.

A model's folder holds::

    model.json     format, method, dataset, rows, relation, the model's own JSON,
                   digests of the other files and of itself
    arrays.npz     the model's arrays
    spec.json      the declared columns of the rows: the spec, with its value lists and
                   constraints written out

``model.json`` is written last: a folder without it holds no model. Reading needs no other file and
runs no code.

Privacy: a model holds released statistics only. What is in the folder is as public as the model.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cloister.constraints.declared import constraints_of, declaration_of
from cloister.errors import InputError, StorageError, VerificationError
from cloister.files import write_whole
from cloister.models.one_table import OneTableModel
from cloister.models.protocol import DatabaseModel, Model
from cloister.models.registry import create, over_databases
from cloister.models.task import DatabaseTask, Task, task_of
from cloister.schema import attributes
from cloister.schema.codelists import parents_of, resolve_values
from cloister.schema.domain import Domain
from cloister.schema.spec import Spec, TableSpec
from cloister.schema.spec_files.loading import spec_digest

_FORMAT = 1
"""Version of the folder's format; a reader refuses greater ones."""

MODEL_DIGEST = "model_sha256"
"""Name under which a registry keeps a model's digest beside it."""

_MODEL, ARRAYS_NAME, _SPEC = "model.json", "arrays.npz", "spec.json"


@dataclass(frozen=True)
class SavedModel:
    """A model read back, with the public inputs that it was fitted with; ``digest`` names it."""

    dataset: str
    method: str
    spec_digest: str
    spec: Spec
    task: DatabaseTask
    model: DatabaseModel
    digest: str

    @property
    def one(self) -> tuple[Task, Model]:
        """The task and the model of the only table.

        Raises:
            InputError: there are several tables.
        """
        if isinstance(self.model, OneTableModel):
            return self.task.lead, self.model.model
        raise InputError(
            f"'{self.dataset}' has several tables; release it again for more of its rows"
        )


def save_model(
    folder: Path, method: str, model: DatabaseModel, task: DatabaseTask, spec: Spec
) -> Path:
    """Write a model into a folder, which is made and returned.

    ``method`` is its name in the registry, ``spec`` the one that ``task`` was made from.

    Raises:
        StorageError: the folder cannot be written.
    """
    meta, arrays = model.state()
    parts = {
        ARRAYS_NAME: _packed(arrays),
        _SPEC: _canonical(self_contained(spec).to_json()),
    }
    record = {
        "format": _FORMAT,
        "method": method,
        "dataset": spec.name,
        "spec_digest": spec_digest(spec),
        "rows": spec.one_or_all({name: table.data_rows for name, table in task.tables.items()}),
        "relation": task.neighbours.relation.value,
        "max_rows": task.neighbours.max_rows,
        "model": meta,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()},
    }
    record["digest"] = _digest(record)
    _write(folder, parts | {_MODEL: _canonical(record)})
    return folder


def load_model(folder: Path, digest: str | None = None) -> Model:
    """The model of the only table in a folder, ready to sample from.

    Models that version 0.1 registered in MLflow call it by this name.

    Raises:
        StorageError, VerificationError, InputError: as `load_saved`, or there are several tables.
    """
    return load_saved(folder, digest).one[1]


def load_saved(folder: Path, digest: str | None = None) -> SavedModel:
    """The model in a folder, and the public inputs that it was fitted with.

    ``digest`` is the one that a release is bound to; None takes any model.

    Raises:
        StorageError: there is none, or it cannot be read.
        VerificationError: a file is not what was saved, or it is another model; names it.
        InputError: it was saved in a newer format, or by a method that is not installed.
    """
    record = _record(folder)
    if digest not in (None, record["digest"]):
        raise _another(folder)
    spec, arrays = _spec(folder, record), _arrays(folder, record)
    task = task_of(spec, spec.by_table(record["rows"]))
    method = over_databases(create(record["method"]))
    model = method.restore(task, record["model"], arrays)
    return SavedModel(
        record["dataset"],
        record["method"],
        record["spec_digest"],
        spec,
        task,
        model,
        record["digest"],
    )


def saved_spec(folder: Path) -> Spec:
    """The spec of the model in a folder, also where its arrays were deleted.

    Raises:
        StorageError, VerificationError, InputError: as `load_saved`.
    """
    return _spec(folder, _record(folder))


def model_digest(folder: Path) -> str:
    """SHA-256 that stands for all files of a model, each of which is read.

    Raises:
        StorageError, VerificationError, InputError: as `load_saved`.
    """
    record = _record(folder)
    for name in record["files"]:
        _part(folder, name, record)
    return str(record["digest"])


def self_contained(spec: Spec) -> Spec:
    """The same spec with no file beside it: value lists and constraints are written out.

    Raises:
        SpecError, ConstraintError, StorageError: a file that the spec names cannot be used.
    """
    if not spec.tables:
        return spec.model_copy(update=_written_parts(spec, spec.folder))
    tables = {
        name: table.model_copy(update=_written_parts(table, spec.folder))
        for name, table in spec.tables.items()
    }
    return spec.model_copy(update={"tables": tables})


def _written_parts(declared: Spec | TableSpec, folder: Path) -> dict[str, Any]:
    domain = Domain.of(declared.attributes, folder)
    constraints = constraints_of(declared.constraints, domain.names, folder, domain=domain)
    return {
        "attributes": {
            name: _written_out(attribute, folder) for name, attribute in declared.attributes.items()
        },
        "constraints": tuple(declaration_of(constraint) for constraint in constraints),
    }


def _written_out(attribute: attributes.AnyAttribute, folder: Path) -> attributes.AnyAttribute:
    written: dict[str, Any] = {}
    if isinstance(attribute, attributes.Categorical | attributes.Ordinal) and isinstance(
        attribute.values, attributes.ValuesFile
    ):
        written["values"] = list(resolve_values(attribute.values, folder))
    if isinstance(tree := getattr(attribute, "hierarchy", None), attributes.ParentsFile):
        written["hierarchy"] = attributes.Parents(parents=dict(parents_of(tree, folder)))
    return attribute.model_copy(update=written)


def _record(folder: Path) -> dict[str, Any]:
    path = folder / _MODEL
    try:
        content = _read(path)
        record: dict[str, Any] = json.loads(content)
        newer = record["format"] > _FORMAT
        digest = _digest({key: value for key, value in record.items() if key != "digest"})
        sound = record["digest"] == digest and content == _canonical(record)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _altered(path) from None
    if newer:
        raise InputError(
            f"{path} was saved by a newer version of Cloister: install that version to read it"
        )
    if not sound:
        raise _altered(path)
    return record


def _spec(folder: Path, record: Mapping[str, Any]) -> Spec:
    content = _part(folder, _SPEC, record)
    try:
        return Spec.declared_in(folder, json.loads(content))
    except (ValueError, ValidationError):
        raise InputError(
            f"{folder / _SPEC} cannot be read by this version of Cloister: "
            "install the one that saved it"
        ) from None


def _arrays(folder: Path, record: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    content = _part(folder, ARRAYS_NAME, record)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile):
        raise _altered(folder / ARRAYS_NAME) from None


def _part(folder: Path, name: str, record: Mapping[str, Any]) -> bytes:
    content = _read(folder / name)
    if hashlib.sha256(content).hexdigest() != record["files"].get(name):
        raise _altered(folder / name)
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read ({os.strerror(error.errno or 0)}): check the model's folder"
        ) from None


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Each file whole or not at all, in the given order."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, partial(Path.write_bytes, data=content))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{folder} cannot be written ({reason}): make room or correct the path"
        ) from None


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"array '{name}' holds objects, which cannot be saved without pickle")
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _canonical(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(record)).hexdigest()


def _altered(path: Path) -> VerificationError:
    return VerificationError(
        f"{path} is not what was saved: fetch the model again, or sample from another release"
    )


def _another(folder: Path) -> VerificationError:
    return VerificationError(
        f"{folder} holds another model than the one that was released: restore it, "
        "or sample from another release"
    )
