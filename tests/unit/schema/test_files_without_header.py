"""CSV files whose first line is a row: drafted, read, written and read again."""

import io

import pandas as pd
import pytest

from cloister.errors import DataError
from cloister.schema.drafts.drafting import draft
from cloister.schema.sources.csv_writing import write_csv_rows
from cloister.schema.spec import SourceSpec
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table

ROWS = [f"{20 + number % 50},{'mf'[number % 2]},{number / 2}" for number in range(60)]


def drafted(tmp_path, lines, encoding="utf-8"):
    file = tmp_path / "people.csv"
    file.write_text("\n".join(lines) + "\n", encoding=encoding)
    text = draft(file)
    (tmp_path / "people.yaml").write_text(text, encoding="utf-8")
    return file, text, load_spec(tmp_path / "people.yaml")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16-le"])
def test_a_file_without_a_header_is_drafted_read_and_written(tmp_path, encoding):
    rows = [row.replace("f", "ä") for row in ROWS]
    file, text, spec = drafted(tmp_path, rows, encoding)
    assert spec.source.header == ("c1", "c2", "c3")
    assert "the first line is a row" in text
    assert [each.type for each in spec.attributes.values()] == ["integer", "categorical", "float"]
    table, _ = read_table(spec, table_domain(spec), file)
    assert table.rows == len(rows)
    written = io.StringIO()
    write_csv_rows(table.frame(), written, spec, header=True)
    (tmp_path / "again.csv").write_text(written.getvalue().lstrip("\ufeff"), encoding=encoding)
    again, _ = read_table(spec, table_domain(spec), tmp_path / "again.csv")
    pd.testing.assert_frame_equal(again.frame(), table.frame())


def table_domain(spec):
    from cloister.schema.domain import Domain

    return Domain.of(spec.attributes, spec.folder)


@pytest.mark.parametrize("header", ["age,sex,income", "2019,2020,x", "a,b,1"])
def test_a_header_stays_one(tmp_path, header):
    _, _, spec = drafted(tmp_path, [header, *ROWS])
    assert spec.source.header is None or header != "age,sex,income"
    if header == "a,b,1":
        assert list(spec.attributes) == ["a", "b", "1"]


@pytest.mark.parametrize("missing", ["", "NA", "?"])
def test_a_name_above_numbers_and_missing_ones_is_no_row(tmp_path, missing):
    rows = [f"{missing if number == 7 else number},{number}" for number in range(60)]
    _, _, spec = drafted(tmp_path, ["age,3", *rows])
    assert (spec.source.header, list(spec.attributes)) == (None, ["age", "3"])


@pytest.mark.parametrize("missing", ["NA", "?"])
def test_a_row_that_lacks_a_number_is_a_row(tmp_path, missing):
    rows = [f"{missing if number % 7 == 0 else number},{number},m" for number in range(60)]
    _, _, spec = drafted(tmp_path, rows)
    assert spec.source.header == ("c1", "c2", "c3")


def test_another_number_of_columns_is_refused(tmp_path):
    file, _, spec = drafted(tmp_path, ROWS)
    changed = spec.model_copy(update={"source": spec.source.model_copy(update={"header": ("a",)})})
    with pytest.raises(DataError, match=r"has 3 columns, and source.header names 1"):
        read_table(changed, table_domain(spec), file)


def test_names_are_given_once():
    with pytest.raises(ValueError, match="names a column twice"):
        SourceSpec(path="x.csv", header=("a", "a"))
