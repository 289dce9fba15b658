"""Parts of a source: any process can read them, and a part of a changed file ends the release."""

import os
import pickle
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from declared_table import TWO, declared

from cloister.errors import DataError, StorageError
from cloister.schema.sources.parts import read_part, source_parts
from cloister.schema.sources.reading import read_frame, require_declared_columns

SOURCES = ["csv", "parquet"]


def written(folder, kind, rows=100):
    frame = pd.DataFrame({"a": np.arange(rows) % 10, "b": np.arange(rows) // 10})
    path = folder / f"table.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path, row_group_size=7)
    return declared(folder, TWO, {"path": str(path)}), path


def parts_of(spec, rows):
    with source_parts(spec, None, rows) as parts:
        return list(parts)


def cells(part, spec):
    return [
        tuple(map(int, row))
        for batch in read_part(part, spec)
        for row in zip(*(batch.cells[name].values() for name in "ab"), strict=True)
    ]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_part_is_read_by_a_process_that_has_its_description_alone(tmp_path, kind, monkeypatch):
    spec, path = written(tmp_path, kind)
    monkeypatch.chdir(tmp_path)
    named = declared(tmp_path, TWO, {"path": path.name})
    parts = parts_of(named, 15)
    assert len(parts) >= 100 // 15
    sent = pickle.loads(pickle.dumps((parts, named)))
    monkeypatch.chdir("/")
    rows = [cells(part, sent[1]) for part in reversed(sent[0])]
    assert sum(rows[::-1], []) == [(row % 10, row // 10) for row in range(100)]
    assert all(part.pin not in repr(part) for part in parts)
    assert spec.attributes == named.attributes


def appended(path):
    path.write_bytes(path.read_bytes() + b"\n1,2\n")


def touched(path):
    later = path.stat().st_mtime_ns + 1_000
    os.utime(path, ns=(later, later))


def replaced_by_as_long(path):
    """As long and as old, as `rsync --times` could write it."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[8] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("change", [appended, touched, replaced_by_as_long])
def test_a_part_of_a_changed_file_ends_the_release(tmp_path, kind, change):
    spec, path = written(tmp_path, kind)
    first, *others = parts_of(spec, 50)
    assert cells(first, spec)
    change(path)
    for part in (first, *others):
        with pytest.raises(StorageError, match="run the same command, which resumes") as caught:
            cells(part, spec)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_file_that_changes_or_becomes_none_while_a_part_is_read_ends_the_release(tmp_path, kind):
    spec, path = written(tmp_path, kind)
    (part,) = parts_of(spec, 1_000)
    batches = read_part(part, spec)
    next(batches)
    touched(path)
    with pytest.raises(StorageError, match="no longer the file"):
        list(batches)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StorageError, match="no longer the file"):
        cells(part, spec)
    path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        cells(part, spec)


def test_without_a_number_of_rows_each_file_is_a_part(tmp_path):
    for number in (10, 9, 1):
        pq.write_table(pa.table({"a": [number], "b": [0]}), tmp_path / f"p{number:02}.parquet")
    spec = declared(tmp_path, TWO, {"path": str(tmp_path)})
    with source_parts(spec) as parts:
        names = [os.path.basename(part.file) for part in parts]
    assert names == ["p01.parquet", "p09.parquet", "p10.parquet"]
    assert read_frame(spec)["a"].tolist() == [1, 9, 10]


def test_patterns_take_several_files_of_csv_each_with_its_header(tmp_path):
    for number in (2, 1):
        (tmp_path / f"rows {number}.csv").write_text(f"a,b\n{number},0\n1\n")
    spec = declared(tmp_path, TWO, {"path": str(tmp_path / "rows *.csv")})
    with pytest.raises(DataError, match=r"rows 1\.csv: 1 row with more or fewer .* \(row 2\)"):
        read_frame(spec)
    (tmp_path / "rows *.csv").write_text("a,b\n7,0\n")  # a name, if a file has it
    assert read_frame(spec)["a"].tolist() == ["7"]


def test_each_of_several_files_has_the_declared_columns(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": [0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1], "c": [0]}), tmp_path / "2.parquet")
    spec = declared(tmp_path, TWO, {"path": str(tmp_path)})
    for check in (read_frame, require_declared_columns):
        with pytest.raises(DataError, match=r"2\.parquet: the declared column\(s\) 'b' are miss"):
            check(spec)


def test_a_folder_or_pattern_without_files_is_told(tmp_path):
    for name in ("", "*.parquet", "none-*.csv", "no/such/*.csv"):
        spec = declared(tmp_path, TWO, {"path": str(tmp_path / name)})
        with pytest.raises(StorageError, match="no file fits it"):
            read_frame(spec)


def test_sqlite_is_one_part_without_a_pin(tmp_path):
    with sqlite3.connect(tmp_path / "table.db") as server:
        server.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
        server.execute("INSERT INTO t VALUES (1, 2)")
    source = {"path": None, "url": f"sqlite:///{tmp_path}/table.db", "table": "t"}
    spec = declared(tmp_path, TWO, source)
    (part,) = parts_of(spec, 1)
    assert (part.file, part.pin, cells(part, spec)) == (None, None, [(1, 2)])
