"""Rows that are read, validated and encoded some at a time are what they are all at once."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specs import spec_of
from validated_rows import validate_rows

from cloister.errors import DataError
from cloister.schema.domain import Domain, code_type
from cloister.schema.sources.parquet_files import read_columns
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table
from cloister.tasks.data.session import HashedRows, keyed_digest
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.home.home import Home
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve

ATTRIBUTES = {
    "person": {"type": "text", "pattern": "P{1..9}"},
    "kind": {"type": "categorical", "values": ["a", "b", "größe"], "nullable": True},
    "level": {"type": "integer", "min": 0, "max": 400, "special": [999]},
    "share": {"type": "float", "min": 0, "max": 1, "decimals": 2, "nullable": True},
    "day": {"type": "date", "min": "2020-01-01", "max": "2020-12-31"},
}
CELLS = {
    "person": st.sampled_from(["P1", "P2", "P03", "ann", "bob"]),
    "kind": st.sampled_from(["a", "b", "größe", "secret", None]),
    "level": st.sampled_from([0, 7, 255, 256, 400, 401, 999, -5]),
    "share": st.sampled_from([0.0, -0.0, 0.5, 0.25, 7.0, float("nan"), None]),
    "day": st.sampled_from(["2020-01-01", "2020-12-31", "2021-01-01", "x"]),
}
ROWS = st.lists(st.tuples(*CELLS.values()), min_size=1, max_size=25)
USUAL = ("P1", "a", 7, 0.5, "2020-01-01")


def declared(folder: Path, name: str, on_invalid: str, unit: object = "row"):
    attributes = {each: {**keys, "provenance": "form"} for each, keys in ATTRIBUTES.items()}
    content = spec_of("visits", 100, attributes, unit=unit, method="independent", delta="0")
    content |= {"source": {"path": str(folder / name)}, "validation": {"on_invalid": on_invalid}}
    (folder / "spec.yaml").write_text(json.dumps(content), encoding="utf-8")
    return load_spec(folder / "spec.yaml")


def write_parquet(rows, path, group, texts=None):
    types = dict.fromkeys(ATTRIBUTES, pa.string()) | {"level": pa.int64(), "share": pa.float64()}
    columns = zip(types.items(), zip(*rows, strict=True), strict=True)
    table = pa.table({name: pa.array(cells, kind) for (name, kind), cells in columns})
    if texts is not None:
        table = table.set_column(1, "kind", table["kind"].cast(texts))
    pq.write_table(table, path, row_group_size=group)


def outcome(spec):
    """Codes by column and the report, or the refusal."""
    try:
        table, report = read_table(spec, Domain.of(spec.attributes, spec.folder))
    except DataError as error:
        return str(error)
    hashed = HashedRows(table.domain.names, table.keyed_hashes)
    digest = keyed_digest(b"data", {"": hashed}, "r-1", bytes(32))
    return {name: codes.tolist() for name, codes in table.codes.items()}, report, digest


@settings(max_examples=6)
@given(
    rows=ROWS,
    group=st.integers(1, 9),
    on_invalid=st.sampled_from(["fail", "drop", "clip"]),
    texts=st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]),
)
def test_row_groups_of_any_size_give_one_table_and_report(tmp_path, rows, group, on_invalid, texts):
    spec = declared(tmp_path, "rows.parquet", on_invalid)
    outcomes = []
    for size in (len(rows), group):
        write_parquet(rows, tmp_path / "rows.parquet", size, texts)
        outcomes.append(outcome(spec))
    assert outcomes[0] == outcomes[1]
    assert "secret" not in str(outcomes[0])
    if isinstance(outcomes[0], tuple):
        frame, report = validate_rows(read_frame(spec), spec)
        whole = Domain.of(spec.attributes, spec.folder).encode(frame)
        codes = {name: codes.tolist() for name, codes in whole.codes.items()}
        assert (codes, report) == outcomes[0][:2]


LINES = [
    *("P1,a,7,0.5,2020-01-01", 'P2,"a",8,,2020-02-02', "P1,a", "x" * 9),
    '"P\n1",b,7,0.5,2020-01-01',
]
"""Some have too few cells, and one has a cell over two lines."""


@settings(max_examples=6)
@given(
    rows=st.lists(st.sampled_from(LINES), max_size=30),
    block=st.integers(60, 200),
    on_invalid=st.sampled_from(["fail", "drop", "clip"]),
)
def test_blocks_of_a_csv_file_of_any_size_give_one_table_and_one_report(
    tmp_path, rows, block, on_invalid
):
    spec = declared(tmp_path, "rows.csv", on_invalid)
    lines = [",".join(ATTRIBUTES), "P1,a,7,0.5,2020-01-01", *rows]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    whole = outcome(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cloister.schema.sources.csv_files._BLOCK_BYTES", block)
        assert outcome(spec) == whole


def test_row_numbers_are_those_of_the_file_however_it_is_read(tmp_path):
    spec = declared(tmp_path, "rows.parquet", "fail")
    odd = ("P1", "secret", 7, 0.5, "2020-01-01")
    rows = [odd if index in (3, 17, 39) else USUAL for index in range(40)]
    write_parquet(rows, tmp_path / "rows.parquet", 4)
    with pytest.raises(DataError, match=r"3 values outside .* \(rows 4, 18, 40\)"):
        read_table(spec, Domain.of(spec.attributes, spec.folder))


def test_a_persons_rows_are_bounded_over_all_row_groups(tmp_path):
    spec = declared(tmp_path, "rows.parquet", "clip", {"key": "person", "max_rows": 2})
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home")})
    rng = np.random.default_rng(1)
    rows = [(f"P{rng.integers(1, 5)}", "a", int(number), 0.5, "2020-01-01") for number in range(60)]
    tables = []
    for group in (60, 7):
        write_parquet(rows, tmp_path / "rows.parquet", group)
        request = resolve(ReleaseRequest(spec=tmp_path / "spec.yaml"))
        database, digests = TablesSource().read_rows("r-1", request, home)
        (table,) = database.tables.values()
        tables.append(({n: c.tolist() for n, c in table.codes.items()}, digests.data))
    assert tables[0] == tables[1]
    assert len(tables[0][0]["person"]) == 8
    assert spec.privacy.unit.max_rows == 2


def test_texts_of_a_dictionary_are_read_once_and_those_of_no_row_never(tmp_path):
    codes = pa.array([0, 1, None] * 1_000, pa.int8())
    kinds = pa.DictionaryArray.from_arrays(codes, ["a", "b", "secret"])
    pq.write_table(pa.table({"kind": kinds}), tmp_path / "rows.parquet", row_group_size=1_000)
    batches = list(read_columns(tmp_path / "rows.parquet", ["kind"]))
    assert sum(batch.rows for batch in batches) == 3_000
    assert all(len(batch.cells["kind"].stored) <= 4 for batch in batches)
    assert len(batches) > 1
    spec = declared(tmp_path, "rows.parquet", "fail")
    spec = spec.model_copy(update={"attributes": {"kind": spec.attributes["kind"]}})
    table, report = read_table(spec, Domain.of(spec.attributes, spec.folder))
    assert report.valid
    assert table.codes["kind"][:3].tolist() == [0, 1, 3]


def test_codes_are_stored_in_the_narrowest_type_and_looked_up_as_int64(tmp_path):
    spec = declared(tmp_path, "rows.parquet", "drop")
    domain = Domain.of(spec.attributes, spec.folder)
    write_parquet([USUAL] * 5, tmp_path / "rows.parquet", 2)
    table, _ = read_table(spec, domain)
    types = [str(table.stored[name].dtype) for name in ATTRIBUTES]
    assert types == ["int64", "uint8", "uint16", "uint8", "uint16"]
    assert {codes.dtype for codes in table.codes.values()} == {np.dtype(np.int64)}
    for column in domain:
        assert np.iinfo(code_type(column)).max >= column.size - 1
    assert {codes.dtype.kind for codes in table.take(slice(1, 3)).stored.values()} == {"i", "u"}
    pd.testing.assert_frame_equal(table.frame(), table.narrow().take(np.arange(5)).frame())
