"""Columns that a spec leaves out: they are neither used nor missed."""

import pandas as pd
import pytest
from declared_table import TWO, declared

from cloister.errors import ConstraintError, SpecError
from cloister.models.task import task_of
from cloister.schema.sources.reading import read_frame


def test_a_column_that_is_left_out_is_not_used(tmp_path):
    with pytest.raises(SpecError, match="under attributes too"):
        declared(tmp_path, TWO, ignore=["a"])
    with pytest.raises(SpecError, match="left out by ignore"):
        declared(tmp_path, TWO, ignore=["x"], evaluation={"targets": {"x": {"above": 1}}})
    for rule in ({"fd": "x -> a"}, {"deny": "t.a > t.x"}, {"key": ["a", "x"]}):
        spec = declared(tmp_path, TWO, ignore=["x"], constraints=[rule])
        with pytest.raises(ConstraintError, match="'x' is left out by ignore"):
            task_of(spec, {spec.name: 100})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_that_is_left_out_may_be_in_the_source_or_not(tmp_path, ending):
    path = tmp_path / f"table.{ending}"
    spec = declared(tmp_path, TWO, {"path": str(path)}, ignore=["x"])
    for names in ("abx", "ab"):
        frame = pd.DataFrame({name: [1, 2] for name in names})
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        assert list(read_frame(spec)) == ["a", "b"]
