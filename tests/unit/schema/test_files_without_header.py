"""CSV files whose first line is a row: drafted, read, written and read again."""

import io

import pandas as pd
import pytest

from cloister.errors import DataError
from cloister.schema.domain import Domain
from cloister.schema.sources.csv_writing import write_csv_rows
from cloister.schema.spec import SourceSpec
from cloister.schema.validation import read_table

ROWS = [f"{20 + number % 50},{'mf'[number % 2]},{number / 2}" for number in range(60)]


def lines(*texts):
    return "\n".join(texts) + "\n"


def domain_of(spec):
    return Domain.of(spec.attributes, spec.folder)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16-le"])
def test_a_file_without_a_header_is_drafted_read_and_written(tmp_path, drafted, encoding):
    text, spec = drafted(lines(*ROWS).replace("f", "ä"), encoding=encoding)
    assert spec.source.header == ("c1", "c2", "c3")
    assert "the first line is a row" in text
    assert [each.type for each in spec.attributes.values()] == ["integer", "categorical", "float"]
    table, _ = read_table(spec, domain_of(spec))
    assert table.rows == len(ROWS)
    written = io.StringIO()
    write_csv_rows(table.frame(), written, spec, header=True)
    (tmp_path / "again.csv").write_text(written.getvalue().lstrip("\ufeff"), encoding=encoding)
    again, _ = read_table(spec, domain_of(spec), tmp_path / "again.csv")
    pd.testing.assert_frame_equal(again.frame(), table.frame())


@pytest.mark.parametrize("header", ["age,sex,income", "2019,2020,x", "a,b,1"])
def test_a_header_stays_one(drafted, header):
    _, spec = drafted(lines(header, *ROWS))
    assert spec.source.header is None or header != "age,sex,income"
    if header == "a,b,1":
        assert list(spec.attributes) == ["a", "b", "1"]


@pytest.mark.parametrize("missing", ["", "NA", "?"])
def test_a_name_above_numbers_and_missing_ones_is_no_row(drafted, missing):
    rows = [f"{missing if number == 7 else number},{number}" for number in range(60)]
    _, spec = drafted(lines("age,3", *rows))
    assert (spec.source.header, list(spec.attributes)) == (None, ["age", "3"])


@pytest.mark.parametrize("missing", ["NA", "?"])
def test_a_row_that_lacks_a_number_is_a_row(drafted, missing):
    rows = [f"{missing if number % 7 == 0 else number},{number},m" for number in range(60)]
    _, spec = drafted(lines(*rows))
    assert spec.source.header == ("c1", "c2", "c3")


def test_another_number_of_columns_and_a_name_that_is_given_twice_are_refused(drafted):
    _, spec = drafted(lines(*ROWS))
    changed = spec.model_copy(update={"source": spec.source.model_copy(update={"header": ("a",)})})
    with pytest.raises(DataError, match=r"has 3 columns, and source.header names 1"):
        read_table(changed, domain_of(spec))
    with pytest.raises(ValueError, match="names a column twice"):
        SourceSpec(path="x.csv", header=("a", "a"))
