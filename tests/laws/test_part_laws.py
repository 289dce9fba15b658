"""Parts of a source, read one after the other, are its rows bit for bit, however it is divided."""

import gzip
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from declared_table import declared
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloister.errors import DataError
from cloister.schema.sources.batches import SourceBatch
from cloister.schema.sources.parts import read_part, source_parts
from cloister.schema.sources.reading import read_batches, require_rows
from cloister.schema.spec import Spec, ValidationSpec

NAMES = ["a", "b"]
COLUMNS = {name: {"type": "text", "pattern": "x{1..9}", "nullable": True} for name in NAMES}
PIECES = [
    *(b'"', b'""', b",", b";", b"\n", b"\r\n", b"\r", b" ", b"x", b"NA", b"'", b"\\"),
    *(b'"x\ny"', b'"",', b'\n"', b'5" pipe', "é".encode(), b"\xe9", b"\xef\xbb\xbf", b"\x00"),
    *("ｘ".encode(), b"1,2\n", b'"p","q"\r\n', b"\n\n", b'"",""\n'),
]
SOURCES: list[dict[str, Any]] = [
    *({}, {"missing": ["NA", ""]}, {"encoding": "latin-1"}, {"delimiter": ";"}),
    *({"header": NAMES}, {"header": NAMES, "encoding": "cp1252"}),
]


def whole(spec: Spec) -> tuple[Any, ...]:
    return outcome(spec, read_batches(spec))


def by_parts(spec: Spec, rows: int) -> tuple[Any, ...]:
    def batches() -> Iterable[SourceBatch]:
        counted = malformed = 0
        with source_parts(spec, None, rows) as parts:
            for part in parts:
                for batch in read_part(part, spec):
                    counted, malformed = counted + batch.rows, malformed + batch.malformed
                    yield batch
        require_rows(spec, None, counted, malformed)

    return outcome(spec, batches())


def outcome(spec: Spec, batches: Iterable[SourceBatch]) -> tuple[Any, ...]:
    """The cells with their storage types, and the lines left out; or the message of a refusal."""
    try:
        pieces = list(batches)
    except DataError as error:
        return (str(error),)
    cells = {}
    for name in spec.attributes:
        columns = [piece.cells[name].values() for piece in pieces if piece.rows]
        cells[name] = [(str(c.dtype), repr(cell)) for c in columns for cell in c]
    return cells, sum(piece.malformed for piece in pieces)


@pytest.mark.parametrize("source", SOURCES, ids=str)
@settings(max_examples=examples(120))
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=40),
    rows=st.integers(1, 4),
    block=st.integers(4, 40),
    on_invalid=st.sampled_from(["drop", "fail"]),
)
@example([b'x,5" pipe\n', b'x,"y\nz"\n', b"x,y\n"], 1, 40, "fail")
@example([b"1,2\n", b"\xef\xbb\xbf1,2\n", b"3,4\n"], 1, 40, "fail")
@example([b'1,"2\n', b"3,4\n"], 1, 40, "fail")
@example([b"1,2\n", b"1,2,3\n", b"\n", b"3\n", b"4,5"], 1, 5, "fail")
def test_parts_of_csv_are_its_rows(tmp_path, source, pieces, rows, block, on_invalid):
    spec = declared(tmp_path, COLUMNS, {"path": str(tmp_path / "rows.csv"), **source})
    spec = spec.model_copy(update={"validation": ValidationSpec(on_invalid=on_invalid)})
    header = b"" if "header" in source else spec.source.delimiter.join(NAMES).encode() + b"\n"
    (tmp_path / "rows.csv").write_bytes(header + b"".join(pieces))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cloister.schema.sources.csv_records._BLOCK_BYTES", block)
        assert by_parts(spec, rows) == whole(spec)


@pytest.mark.parametrize("packed", [True, False])
def test_packed_and_wide_files_are_one_part(tmp_path, packed):
    encoding, name = ("utf-8", "rows.csv.gz") if packed else ("utf-16-le", "rows.csv")
    source = {"path": str(tmp_path / name), "encoding": encoding, "format": "csv"}
    spec = declared(tmp_path, COLUMNS, source)
    text = "a,b\n" + 'é,"x\ny"\n1,2,3\n' * 20
    raw = gzip.compress(text.encode()) if packed else b"\xff\xfe" + text.encode("utf-16-le")
    (tmp_path / name).write_bytes(raw)
    spec = spec.model_copy(update={"validation": ValidationSpec(on_invalid="drop")})
    with source_parts(spec, None, 2) as parts:
        assert len(parts) == 1
    cells = {name: [("str", repr(cell))] * 20 for name, cell in (("a", "é"), ("b", "x\ny"))}
    assert by_parts(spec, 2) == whole(spec) == (cells, 20)


CELLS = st.sampled_from([None, "x", "y", "é", "", "x" * 40])


@settings(max_examples=examples(60))
@given(
    files=st.lists(st.lists(st.tuples(CELLS, CELLS), max_size=12), min_size=1, max_size=4),
    group=st.integers(1, 5),
    rows=st.integers(1, 9),
    kinds=st.tuples(*[st.sampled_from(["string", "large_string", "dictionary"])] * 2),
    written=st.booleans(),
    form=st.sampled_from(["folder", "pattern"]),
)
def test_parts_of_parquet_are_its_rows(tmp_path, files, group, rows, kinds, written, form):
    for old in tmp_path.glob("*.parquet"):
        old.unlink()
    for number, cells in enumerate(files):
        columns = zip(*cells, strict=True) if cells else ([], [])
        table = pa.table([stored(*own) for own in zip(columns, kinds, strict=True)], NAMES)
        path = tmp_path / f"part-{number}.parquet"
        pq.write_table(table, path, row_group_size=group, use_dictionary=written)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "_metadata.parquet").touch()
    source = tmp_path if form == "folder" else tmp_path / "part-*.parquet"
    spec = declared(tmp_path, COLUMNS, {"path": str(source)})
    read = whole(spec)
    assert by_parts(spec, rows) == read
    every = [cell for cells in files for cell in cells]
    if every:
        for name, column in zip(NAMES, zip(*every, strict=True), strict=True):
            written = ["nan" if cell is None else repr(cell) for cell in column]
            assert [cell for _, cell in read[0][name]] == written
    with source_parts(spec, None, rows) as parts:
        sizes = [sum(batch.rows for batch in read_part(part, spec)) for part in parts]
    assert max(sizes) <= max(rows, group)


def stored(cells: Iterable[Any], kind: str) -> pa.Array:
    if kind == "dictionary":
        return pa.array(cells, "string").dictionary_encode()
    return pa.array(cells, kind)
