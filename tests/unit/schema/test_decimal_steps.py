"""Decimal numbers by a step: what is read, repaired, drawn and drafted."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from declared_table import declared

from cloister.models.core.bins import bin_cells
from cloister.schema.attributes import Float
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells
from cloister.schema.ticks import stride_of
from cloister.schema.validation import read_table

ROOMS = Float(type="float", min=1, max=15, decimals=1, step=0.5)


def test_values_are_those_of_the_step():
    column = Domain.of({"rooms": ROOMS}, Path())["rooms"]
    assert (column.values, stride_of(ROOMS)) == (29, 5)
    assert column.encode(pd.Series([1.0, 1.5, 8.7, 15.0, 15.5])).tolist() == [0, 1, -1, 28, -1]
    assert column.decode(np.arange(29)).tolist() == [1 + index / 2 for index in range(29)]
    binned = Domain.of({"rooms": ROOMS.model_copy(update={"bins": 4})}, Path())["rooms"]
    cells = declared_cells(binned)
    assert cells.widths.sum() == 29
    assert bin_cells(cells, np.full(cells.size, 0.25), 0.0, keep=True).size == 4


def test_a_step_finer_than_the_decimals_is_refused():
    for decimals, step in ((None, 0.5), (0, 0.5), (1, 0.25), (2, 0.005), (1, 1e-9)):
        with pytest.raises(ValueError, match="needs as many decimals"):
            Float(type="float", min=0, max=9, decimals=decimals, step=step)


@pytest.mark.parametrize("step", [0.1, 0.3, 0.5, 2, 2.5, 1.2])
def test_any_step_of_the_decimals_is_a_grid(step):
    attribute = Float(type="float", min=0, max=30, decimals=1, step=step)
    column = Domain.of({"x": attribute}, Path())["x"]
    values = column.decode(np.arange(column.values))
    assert np.allclose(np.diff(values), step)
    assert values.max() <= 30 < values.max() + step + 1e-9
    assert (column.encode(values) == np.arange(column.values)).all()


@pytest.mark.parametrize(
    ("on_invalid", "expected"), [("drop", [2.5, 15]), ("clip", [2.5, 8.5, 15, 15])]
)
def test_rows_between_the_steps_are_invalid_or_moved(tmp_path, on_invalid, expected):
    (tmp_path / "table.csv").write_text("rooms\n2.5\n8.7\n15.0\n99\n")
    keys, source = ROOMS.model_dump(exclude_unset=True), {"path": str(tmp_path / "table.csv")}
    spec = declared(tmp_path, {"rooms": keys}, source, validation={"on_invalid": on_invalid})
    domain = Domain.of(spec.attributes, tmp_path)
    table, report = read_table(spec, domain)
    assert domain["rooms"].decode(table.codes["rooms"]).tolist() == expected
    assert not report.valid


@pytest.mark.parametrize(
    ("values", "step"),
    [
        (np.arange(2, 30) / 2, 0.5),
        (np.arange(1, 60) / 4, 0.25),
        (np.arange(2, 11) / 2, 0.5),
        (np.arange(1, 300) / 10, None),
        (np.array([0.5, 0.6, 0.8, 1.0]), None),
        (np.array([0.5, 1.0, 1.5]), None),
        (np.arange(0, 40) * 1.5 - 3, 1.5),
        (np.arange(1, 80) / 3, None),
    ],
)
def test_a_draft_finds_the_step(tmp_path, drafted, values, step):
    frame = pd.DataFrame({"rooms": np.tile(values, 30), "a": 1})
    attribute = drafted(frame)[1].attributes["rooms"]
    assert getattr(attribute, "step", None) == step
    column = Domain.of({"rooms": attribute}, tmp_path)["rooms"]
    assert (column.encode(pd.Series(values)) >= 0).all()
