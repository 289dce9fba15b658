"""Parquet files with an order of categories and zones of moments: a release has them too."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from validated_rows import validate_rows

from cloister.errors import DataError, SpecError
from cloister.schema.attributes import Datetime, Ordinal
from cloister.schema.domain import Domain
from cloister.schema.drafts.drafting import draft
from cloister.schema.drafts.times import ANY_MOMENT
from cloister.schema.parsing import parse
from cloister.schema.series import zoned_dtype
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.data.tables import write_csv, write_table

ROWS = 40
GRADES = ["none", "low", "middle", "high"]
ZONES = ["Europe/Berlin", "America/New_York", "UTC", "+02:00"]


def grades(ordered=True):
    drawn = [GRADES[1 + index % 3] if index % 7 else None for index in range(ROWS)]
    return pd.Series(pd.Categorical(drawn, categories=GRADES, ordered=ordered))


def moments(zone):
    hours = pd.date_range("2021-03-27 22:30", periods=ROWS, freq="67min", unit="us")
    return pd.Series(hours.tz_localize("UTC").tz_convert(zone)).mask(np.arange(ROWS) % 5 == 1)


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
def test_an_order_of_categories_is_drafted_and_released(tmp_path, drafted, options):
    frame = pd.DataFrame({"grade": grades(), "kind": grades(ordered=False)})
    _, spec = drafted(frame, "table.parquet", **options)
    assert isinstance(spec.attributes["grade"], Ordinal)
    assert spec.attributes["grade"].values == GRADES
    assert spec.attributes["kind"].type == "categorical"
    again = written(tmp_path, spec)
    pd.testing.assert_series_equal(again["grade"], frame["grade"])
    assert again["kind"].cat.ordered is False
    assert list(again["kind"].astype(object).dropna()) == list(frame["kind"].dropna())


def test_lists_of_several_orders_in_one_file_are_no_order(tmp_path):
    schema = pa.schema([("grade", pa.dictionary(pa.int8(), pa.string(), ordered=True))])
    with pq.ParquetWriter(tmp_path / "table.parquet", schema) as file:
        for names in (["low", "high"], ["high", "low"]):
            places = pa.array([0, 1] * 30, pa.int8())
            cells = pa.DictionaryArray.from_arrays(places, names, ordered=True)
            file.write_table(pa.table([cells], schema=schema))
    assert spec_of(tmp_path).attributes["grade"].type == "categorical"


@pytest.mark.parametrize(
    ("zone", "unit"), [*((zone, "us") for zone in ZONES), (ZONES[0], "ms"), (ZONES[0], "ns")]
)
def test_moments_keep_their_zone(tmp_path, drafted, zone, unit):
    frame = pd.DataFrame({"at": moments(zone).dt.as_unit(unit)})
    _, spec = drafted(frame, "table.parquet")
    assert isinstance(spec.attributes["at"], Datetime)
    pd.testing.assert_series_equal(written(tmp_path, spec)["at"], frame["at"])
    stored = [
        pq.read_schema(tmp_path / name).field("at").type
        for name in ("table.parquet", "again.parquet")
    ]
    assert stored[0] == stored[1]
    write_csv(tmp_path / "again.parquet", tmp_path / "again.csv", spec)
    texts = pd.read_csv(tmp_path / "again.csv")["at"].dropna()
    assert list(pd.to_datetime(texts, utc=True)) == list(frame["at"].dropna().dt.tz_convert("UTC"))


def test_a_zone_that_is_not_known_is_refused(tmp_path, drafted):
    assert zoned_dtype("datetime64[us, Europe/Nowhere]") is None
    text, spec = drafted(pd.DataFrame({"at": moments("Europe/Berlin")}), "table.parquet")
    (tmp_path / "draft.yaml").write_text(text.replace("Europe/Berlin", "Europe/Nowhere"))
    with pytest.raises(SpecError, match="dtype: cannot hold"):
        load_spec(tmp_path / "draft.yaml")
    assert "Europe/Berlin" in spec.attributes["at"].dtype


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_moment_of_no_year_is_invalid_and_not_wrapped_to_another(tmp_path, unit):
    """In microseconds it would be beyond 64 bits, of which the lowest are those of 1970."""
    wraps = 2**64 // (10**6 if unit == "s" else 1000) + 1
    stored = pa.array([wraps, *range(ROWS)], pa.timestamp(unit))
    pq.write_table(pa.table({"at": stored}), tmp_path / "table.parquet")
    typed, invalid = parse(pd.read_parquet(tmp_path / "table.parquet")["at"], ANY_MOMENT)
    assert invalid.tolist() == [True, *[False] * ROWS]
    assert typed.isna().tolist() == invalid.tolist()
    said = draft(tmp_path / "table.parquet")
    assert "; 1 of no year from 1 to 9999, which cannot be declared" in said
    attribute = spec_of(tmp_path).attributes["at"]
    assert (attribute.type, attribute.min.year, attribute.max.year) == ("datetime", 1970, 1970)


def test_moments_at_the_ends_of_nanoseconds_are_drafted_within_them(drafted):
    ends = pd.Series(["1677-09-22T01:00:00", "2262-04-10T23:00:00.000001"]).astype("M8[ns]")
    attribute = drafted(pd.DataFrame({"at": ends}), "table.parquet")[1].attributes["at"]
    assert (attribute.dtype, attribute.step) == ("datetime64[ns]", 0.0001)
    assert pd.Timestamp(attribute.min).as_unit("ns") <= ends[0]
    assert ends[1] <= pd.Timestamp(attribute.max).as_unit("ns")


def test_a_file_with_flipped_bits_is_read_or_refused(tmp_path):
    """Codes beyond their dictionary among others, which end in no fault of the reader."""
    path, rng = tmp_path / "table.parquet", np.random.default_rng(5)
    frame = pd.DataFrame({"town": rng.choice(["Ada", "Bath", "Cork"], 300), "at": range(300)})
    frame.to_parquet(path, index=False)
    spec, content, refused = spec_of(tmp_path), path.read_bytes(), 0
    for number, bit in enumerate(rng.choice(8 * len(content), 50, replace=False)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            validate_rows(read_frame(spec), spec)
            if number % 20 == 0:
                draft(path)
        except DataError:
            refused += 1
    assert refused > 5


@pytest.mark.parametrize(
    ("cells", "length", "said"), [(26_000_000, 0, "25,000,000 cells"), (300, 4 << 20, "1,024 MiB")]
)
def test_a_small_file_of_more_cells_than_a_draft_takes_is_refused(tmp_path, cells, length, said):
    words = pa.DictionaryArray.from_arrays(np.zeros(cells, np.int8), pa.array(["x" * length]))
    pq.write_table(pa.table({"word": words}), tmp_path / "table.parquet", store_schema=False)
    assert (tmp_path / "table.parquet").stat().st_size < 1 << 20
    with pytest.raises(DataError, match=said):
        draft(tmp_path / "table.parquet")
