"""A saved model is restored as it was, from its folder alone; an altered byte is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from leavers import leavers

from cloister.errors import CloisterError, InputError, StorageError, VerificationError
from cloister.models.one_table import OneTableModel
from cloister.models.storage import load_model, load_saved, save_model, self_contained
from cloister.models.task import DatabaseTask, task_of
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.spec import Spec


def save(folder: Path, fitted) -> Path:
    task = DatabaseTask.of(fitted.spec.name, fitted.task)
    return save_model(folder, "kamino", OneTableModel(task.schema, fitted.model), task, fitted.spec)


@pytest.fixture
def saved(fitted, tmp_path: Path) -> Path:
    return save(tmp_path / "model", fitted)


def test_a_saved_model_draws_the_same_rows_and_brings_its_declared_world(fitted, saved, tmp_path):
    alone = tmp_path / "elsewhere"
    shutil.move(saved, alone)
    drawn = load_model(alone).sample(300, SamplingSource(5)).frame()
    pd.testing.assert_frame_equal(drawn, fitted.model.sample(300, SamplingSource(5)).frame())
    loaded, task = load_saved(alone), fitted.task
    assert loaded.task.constraints == task.constraints
    assert loaded.task.lead.domain.names == task.domain.names
    assert (loaded.task.data_rows, loaded.task.neighbours) == (task.data_rows, task.neighbours)
    assert (loaded.dataset, loaded.method) == ("small", "kamino")


def test_a_self_contained_spec_needs_no_file_and_has_checks_as_the_same_denials(fitted):
    alone = self_contained(fitted.spec)
    towns = ["Aa", "Bé", 'C "quoted"', "D, with comma", "E-dash", "F"]
    assert alone.attributes["home town"].values == towns
    assert [constraint.name for constraint in alone.constraints] == ["town-state", "soft-pay"]
    spec = leavers(50).declared()
    alone, rows = self_contained(spec), {spec.name: 50}
    assert not any(declared.check for declared in alone.constraints)
    assert task_of(alone, rows).constraints == task_of(spec, rows).constraints


def test_saving_twice_gives_the_same_bytes_and_nothing_is_pickled(fitted, saved, tmp_path):
    again = save(tmp_path / "again", fitted)
    for path in saved.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()
    with np.load(saved / "arrays.npz", allow_pickle=False) as arrays:
        assert all(not arrays[name].dtype.hasobject for name in arrays.files)


@pytest.mark.parametrize("name", ["model.json", "arrays.npz", "spec.json"])
def test_an_altered_byte_is_found_and_its_file_named(saved: Path, name: str):
    content = (saved / name).read_bytes()
    for offset in np.linspace(0, len(content) - 1, 25).astype(int):
        (saved / name).write_bytes(
            content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :]
        )
        with pytest.raises(VerificationError, match=name):
            load_model(saved)


def test_a_missing_model_a_newer_format_and_an_unwritable_folder_are_clear_errors(
    fitted, saved: Path, tmp_path: Path
):
    with pytest.raises(StorageError, match=r"model\.json cannot be read"):
        load_model(tmp_path)
    record = json.loads((saved / "model.json").read_text())
    (saved / "model.json").write_text(json.dumps(record | {"format": 99}))
    with pytest.raises(InputError, match="newer version"):
        load_model(saved)
    (tmp_path / "file").write_text("")
    with pytest.raises(CloisterError, match="cannot be written"):
        save(tmp_path / "file" / "model", fitted)


def test_a_declared_table_is_a_database_be_it_the_only_one(tmp_path: Path):
    alone = leavers(200).spec
    outer = ("name", "privacy", "release", "tables")
    table = {key: part for key, part in alone.items() if key not in outer}
    declared = {key: alone[key] for key in outer if key in alone}
    spec = Spec.declared_in(tmp_path, declared | {"tables": {"people": table}})
    several, one = (
        task_of(spec, {"people": 200}),
        task_of(leavers(200).declared(), {"leavers": 200}),
    )
    assert (several.several, one.several) == (True, False)
