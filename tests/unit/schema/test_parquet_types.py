"""Parquet files with an order of categories and zones of moments: a release has them too."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloister.errors import SpecError
from cloister.schema.attributes import Datetime, Ordinal
from cloister.schema.domain import Domain
from cloister.schema.drafts.drafting import draft
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation.tables import validate_rows
from cloister.schema.values.series import zoned_dtype
from tasks.runtime.tables import write_csv, write_table

ROWS = 40
GRADES = ["none", "low", "middle", "high"]
ZONES = ["Europe/Berlin", "America/New_York", "UTC", "+02:00"]


def grades(ordered=True):
    drawn = [GRADES[1 + at % 3] if at % 7 else None for at in range(ROWS)]
    return pd.Series(pd.Categorical(drawn, categories=GRADES, ordered=ordered))


def moments(zone):
    hours = pd.date_range("2021-03-27 22:30", periods=ROWS, freq="67min", unit="us")
    return pd.Series(hours.tz_localize("UTC").tz_convert(zone)).mask(np.arange(ROWS) % 5 == 1)


def drafted(tmp_path, frame, **options):
    frame.to_parquet(tmp_path / "table.parquet", index=False, **options)
    return spec_of(tmp_path)


def spec_of(tmp_path):
    (tmp_path / "draft.yaml").write_text(draft(tmp_path / "table.parquet"), encoding="utf-8")
    return load_spec(tmp_path / "draft.yaml")


def written(tmp_path, spec):
    """The rows of the source as a release writes them, and their file."""
    frame, report = validate_rows(read_frame(spec), spec)
    assert report.valid
    write_table(Domain.of(spec.attributes, spec.folder).encode(frame), tmp_path / "again.parquet")
    return pd.read_parquet(tmp_path / "again.parquet")


@pytest.mark.parametrize("options", [{}, {"row_group_size": 7}])
def test_an_order_of_categories_is_drafted_and_released(tmp_path, options):
    frame = pd.DataFrame({"grade": grades(), "kind": grades(ordered=False)})
    spec = drafted(tmp_path, frame, **options)
    assert isinstance(spec.attributes["grade"], Ordinal)
    assert spec.attributes["grade"].values == GRADES
    assert spec.attributes["kind"].type == "categorical"
    again = written(tmp_path, spec)
    pd.testing.assert_series_equal(again["grade"], frame["grade"])
    assert again["kind"].cat.ordered is False
    assert list(again["kind"].astype(object).dropna()) == list(frame["kind"].dropna())


def test_lists_of_several_orders_in_one_file_are_no_order(tmp_path):
    kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    schema = pa.schema([("grade", kind)])
    with pq.ParquetWriter(tmp_path / "table.parquet", schema) as file:
        for names in (["low", "high"], ["high", "low"]):
            places = pa.array([0, 1] * 30, pa.int8())
            cells = pa.DictionaryArray.from_arrays(places, names, ordered=True)
            file.write_table(pa.table([cells], schema=schema))
    assert spec_of(tmp_path).attributes["grade"].type == "categorical"


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", ZONES)
def test_moments_keep_their_zone(tmp_path, zone, unit):
    frame = pd.DataFrame({"at": moments(zone).dt.as_unit(unit)})
    spec = drafted(tmp_path, frame)
    assert isinstance(spec.attributes["at"], Datetime)
    again = written(tmp_path, spec)
    pd.testing.assert_series_equal(again["at"], frame["at"])
    stored = [
        pq.read_schema(tmp_path / name).field("at").type
        for name in ("table.parquet", "again.parquet")
    ]
    assert stored[0] == stored[1]
    write_csv(tmp_path / "again.parquet", tmp_path / "again.csv", spec)
    texts = pd.read_csv(tmp_path / "again.csv")["at"].dropna()
    assert list(pd.to_datetime(texts, utc=True)) == list(frame["at"].dropna().dt.tz_convert("UTC"))


def test_a_zone_that_is_not_known_is_refused(tmp_path):
    assert zoned_dtype("datetime64[us, Europe/Nowhere]") is None
    spec = drafted(tmp_path, pd.DataFrame({"at": moments("Europe/Berlin")}))
    text = (tmp_path / "draft.yaml").read_text().replace("Europe/Berlin", "Europe/Nowhere")
    (tmp_path / "draft.yaml").write_text(text)
    with pytest.raises(SpecError, match="dtype: cannot hold"):
        load_spec(tmp_path / "draft.yaml")
    assert "Europe/Berlin" in spec.attributes["at"].dtype
