"""Times of day and lengths of time as numbers: read, written and drafted as in the source."""

import datetime as dt
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloister.errors import SpecError
from cloister.models.task import task_of
from cloister.schema.attributes import Float, Integer
from cloister.schema.domain import column_of
from cloister.schema.drafts.drafting import draft
from cloister.schema.parsing import parse
from cloister.schema.sources.csv_writing import write_csv_rows
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table

ROWS = 200


def _whole(form):
    return Integer(type="integer", min=0, max=1000, format=form)


@pytest.mark.parametrize(
    ("form", "texts", "numbers"),
    [
        ("%H:%M", ["00:00", "08:30", "8:30", "27:15", "08:30:00"], [0, 510, 510, 1635, 510]),
        ("%H:%M:%S", ["00:00:07", "08:30", "23:59:59.000"], [7, 30_600, 86_399]),
        ("%-I:%M %p", ["12:00 AM", "3:05 PM", "03:05pm", "12:59 PM"], [0, 905, 905, 779]),
    ],
)
def test_times_are_whole_numbers_of_minutes_or_seconds(form, texts, numbers):
    typed, invalid = parse(pd.Series(texts, dtype="str"), _whole(form))
    assert typed.tolist() == numbers
    assert not invalid.any()


def test_other_texts_are_invalid():
    texts = ["8", "8:3", "08:60", "08:30:60", "-01:00", "08.30", "a", "", "12:00 PM"]
    assert parse(pd.Series(texts, dtype="str"), _whole("%H:%M:%S"))[1].all()
    assert parse(pd.Series(["08:30:01"], dtype="str"), _whole("%H:%M"))[1].all()


def test_fractions_of_seconds_are_decimal_numbers():
    attribute = Float(type="float", min=0, max=86_400, decimals=3, format="%H:%M:%S.%3f")
    typed, _ = parse(pd.Series(["08:30:00.25", "00:00:01"], dtype="str"), attribute)
    assert typed.tolist() == [30_600.25, 1.0]
    with pytest.raises(ValueError, match="form of a number"):
        _whole("%H:%M:%S.%3f")


def _frame():
    rng = np.random.default_rng(1)
    seconds = rng.integers(0, 86_400, ROWS)
    lengths = rng.integers(0, 9_000, ROWS)
    gone = rng.random(ROWS) < 0.2
    times = [(dt.datetime.min + dt.timedelta(seconds=int(s))).time() for s in seconds]
    fine = [time.replace(microsecond=int(m)) for time, m in zip(times, lengths * 100, strict=True)]
    whole = [dt.timedelta(seconds=int(s)) for s in lengths]
    took = [None if g else w for g, w in zip(gone, whole, strict=True)]
    return pa.table(
        {
            "at": pa.array(times, pa.time32("s")),
            "minute": pa.array([time.replace(second=0) for time in times], pa.time64("us")),
            "fine": pa.array(fine, pa.time64("ns")),
            "took": pa.array(took, pa.duration("us")),
            "half": pa.array([w / 2 for w in whole], pa.duration("ms")),
        }
    )


def _written(spec):
    """The rows of a source, read and written as CSV."""
    table, report = read_table(spec, task_of(spec, {spec.name: ROWS}).lead.domain)
    assert report.valid
    written = io.StringIO()
    write_csv_rows(table.frame(), written, spec, header=True)
    return written.getvalue()


def test_native_times_are_drafted_as_numbers_and_come_back_as_they_were(tmp_path):
    pq.write_table(_frame(), tmp_path / "trips.parquet")
    native = pq.read_table(tmp_path / "trips.parquet")
    text = draft(tmp_path / "trips.parquet")
    (tmp_path / "draft.yaml").write_text(text, encoding="utf-8")
    spec = load_spec(tmp_path / "draft.yaml")
    assert {name: attribute.type for name, attribute in spec.attributes.items()} == {
        "at": "integer", "minute": "integer", "fine": "float", "took": "float", "half": "float"
    }  # fmt: skip
    assert (spec.attributes["at"].min, spec.attributes["at"].max) == (0, 86_399)
    assert (spec.attributes["minute"].step, spec.attributes["minute"].max) == (60, 86_340)
    assert spec.ignore == ()
    table, report = read_table(spec, task_of(spec, {spec.name: ROWS}).lead.domain)
    assert report.valid
    back = pa.Table.from_pandas(table.frame(), preserve_index=False)
    assert back.schema.types == native.schema.types
    assert all(back[name].equals(native[name]) for name in ("at", "minute", "took", "half"))
    assert back["fine"].cast(pa.time64("us")).equals(native["fine"].cast(pa.time64("us")))
    (tmp_path / "draft.yaml").write_text(text.replace("max: 86399,", "max: 90000,"))
    with pytest.raises(SpecError, match="cannot hold all declared values"):
        load_spec(tmp_path / "draft.yaml")


def test_times_in_text_are_drafted_as_numbers_and_written_as_they_were(tmp_path, drafted):
    frame = pd.DataFrame(
        {
            "opens": [f"{7 + n % 4}:{n % 60:02d}" for n in range(ROWS)],
            "at": [f"{n % 24:02d}:{n % 60:02d}:00" for n in range(ROWS)],
            "took": [f"{n:02d}:{n % 60:02d}" if n % 7 else None for n in range(ROWS)],
            "lap": [f"00:01:{n % 60:02d}.{n:03d}" for n in range(ROWS)],
        }
    )
    _, spec = drafted(frame)
    assert [attribute.type for attribute in spec.attributes.values()] == ["integer"] * 3 + ["float"]
    assert spec.attributes["took"].max >= 199 * 60
    assert spec.attributes["opens"].max == 1439
    assert _written(spec) == (tmp_path / "table.csv").read_text()


def test_lengths_of_time_of_pandas_are_seconds():
    spans = pd.Series(pd.to_timedelta([90, None], unit="s"))
    attribute = Integer(type="integer", min=0, max=100, nullable=True, dtype="duration[s][pyarrow]")
    typed, invalid = parse(spans, attribute)
    assert typed.fillna(-1).tolist() == [90, -1]
    assert not invalid.any()
    column = column_of("took", attribute, None)
    assert column.decode(column.encode(spans)).tolist()[0] == pd.Timedelta(seconds=90)


def test_times_are_read_beside_decimal_commas(tmp_path, drafted):
    frame = pd.DataFrame(
        {
            "at": [f"{n % 24:02d}:{n % 60:02d}" for n in range(ROWS)],
            "price": [f"{n},{n % 97:02d}" for n in range(ROWS)],
        }
    )
    _, spec = drafted(frame, sep=";")
    assert (spec.source.decimal, spec.attributes["at"].format) == (",", "%H:%M")
    assert _written(spec) == (tmp_path / "table.csv").read_text()


def test_a_clock_of_twelve_hours_writes_those_of_a_day():
    with pytest.raises(ValueError, match="keep to 0 to 1439"):
        Integer(type="integer", min=0, max=1440, format="%-I:%M %p")
    assert parse(pd.Series(["15:05", "0:10 AM", "13:00 PM"]), _whole("%I:%M %p"))[1].all()
