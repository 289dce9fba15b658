"""Text files of other encodings: each row is read on its own, whatever stands in others."""

from pathlib import Path

import numpy as np
import pytest
from declared_table import MOMENT, TWO, WHOLE, declared
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from validated_rows import validate_rows

from cloister.errors import DataError
from cloister.schema.domain import Domain
from cloister.schema.sources.reading import read_frame
from cloister.tasks.data.tables import write_csv, write_table

WIDE = ["utf-16-le", "utf-16-be"]


POOL = [
    *(b"1.5", b"1,5", b"1.234,5", b"1'234", b"-7", b"", b"NA", b"x\x81", b"\xe4", b"\xff", b"\x8d"),
    *(
        b"31.12.2020",
        b"31.12.2020 10:00",
        b"2020-12-31",
        b"1",
        b"0",
        b'"a\n"',
        b"01.02.03",
        b"\xa01",
    ),
]
KINDS = {
    "text": {"type": "categorical", "values": ["ä", "1"]},
    "whole": {"type": "integer", "min": -9, "max": 9999},
    "number": {"type": "float", "min": -9, "max": 9999},
    "day": {"type": "date", "min": "2000-01-01", "max": "2030-01-01", "format": "%d.%m.%Y"},
    "at": {**MOMENT, "format": "%d.%m.%Y %H:%M", "step": 60},
    "flag": {"type": "boolean", "true": "1", "false": "0"},
}


def stored(raw, encoding):
    """The bytes of a file; in UTF-16 bytes that are no letter of UTF-8 become half letters."""
    if encoding not in WIDE:
        return raw
    return raw.decode("utf-8", "surrogateescape").encode(encoding, "surrogatepass")


@settings(max_examples=examples(20))
@given(
    st.lists(st.tuples(*[st.sampled_from(POOL)] * len(KINDS)), min_size=2, max_size=5),
    st.sampled_from(["utf-8", "latin-1", "cp1252", *WIDE]),
    st.sampled_from([(",", "."), (",", None), (".", "'")]),
)
def test_no_row_changes_how_another_is_read(tmp_path, rows, encoding, marks):
    attributes = {name: {**keys, "nullable": True} for name, keys in KINDS.items()}
    source = {"path": str(tmp_path / "t.csv"), "delimiter": ";", "encoding": encoding}
    source |= {"decimal": marks[0], "missing": ["NA", ""]}
    source |= {"thousands": marks[1]} if marks[1] else {}
    spec = declared(tmp_path, attributes, source)

    def read(some):
        lines = [";".join(KINDS).encode(), *(b";".join(row) for row in some)]
        (tmp_path / "t.csv").write_bytes(stored(b"\n".join(lines) + b"\n", encoding))
        frame = read_frame(spec)
        return [column.encode(frame[column.name]) for column in Domain.of(spec.attributes, Path())]

    together, alone = read(rows), [read([row]) for row in rows]
    for index, codes in enumerate(together):
        np.testing.assert_array_equal(
            codes, np.concatenate([codes_alone[index] for codes_alone in alone])
        )


@pytest.fixture
def stored_as(tmp_path):
    """A file of such a text, and the source that declares its encoding, or another."""

    def make(text, encoding, as_another=None):
        path = tmp_path / "table.csv"
        path.write_bytes(text.encode(encoding, "surrogatepass"))
        return {"path": str(path), "encoding": as_another or encoding}

    return make


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_utf_16_is_read_with_and_without_its_mark_and_written_with_it(
    tmp_path, stored_as, encoding, mark
):
    text = 'größe,"n"\nZoë,1\n日😀,2\n'
    source = stored_as(mark + text, encoding)
    listed = {"type": "categorical", "values": ["Zoë", "日😀"]}
    spec = declared(tmp_path, {"größe": listed, "n": WHOLE}, source)
    frame, report = validate_rows(read_frame(spec), spec)
    assert report.valid
    write_table(Domain.of(spec.attributes, spec.folder).encode(frame), tmp_path / "o.parquet")
    write_csv(tmp_path / "o.parquet", tmp_path / "o", spec)
    assert (tmp_path / "o").read_bytes() == ("\ufeff" + text.replace('"', "")).encode(encoding)


def test_half_letters_of_utf_16_spoil_their_cells_and_ragged_rows_are_numbered(tmp_path, stored_as):
    source = stored_as("a,b\n\ud800,1\nx,2\ny,\udc00\n", "utf-16-le")
    letters = {"type": "categorical", "values": ["x", "y"], "nullable": True}
    attributes = {"a": letters, "b": {**WHOLE, "nullable": True}}
    spec = declared(tmp_path, attributes, source, validation={"on_invalid": "clip"})
    frame, report = validate_rows(read_frame(spec), spec)
    assert frame["a"].fillna("-").tolist() == ["-", "x", "y"]
    assert frame["b"].fillna(-1).tolist() == [1, 2, -1]
    assert not report.valid
    source = stored_as("\ufeffa,b\n1,2\n3\n", "utf-16-le")
    with pytest.raises(DataError, match="row 2"):
        read_frame(declared(tmp_path, TWO, source))


@pytest.mark.parametrize(
    ("encoding", "order"), [("utf-8", "le"), ("utf-16-be", "le"), ("utf-16-le", "be")]
)
def test_a_file_of_the_other_byte_order_is_refused_by_name(tmp_path, stored_as, encoding, order):
    source = stored_as("\ufeffa,b\n1,2\n", f"utf-16-{order}", encoding)
    with pytest.raises(DataError, match=f"declare source.encoding: utf-16-{order}"):
        read_frame(declared(tmp_path, TWO, source))
