"""Drafted specs: guessed types, bounds outside the data, every guess marked, read back whole."""

import datetime as dt
import gzip

import pandas as pd
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from validated_rows import validate_rows

from cloister.errors import DataError, StorageError
from cloister.privacy.certificate.provenance import ignored_columns
from cloister.schema.drafts.drafting import draft
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import data_derived, load_spec

ROWS = 40
COLUMNS = {
    "id": ("text", [f"P-{n:04d}" for n in range(ROWS)]),
    "uuid": ("text", [f"{n * 7919 % 1009:x}-{n:x}" for n in range(ROWS)]),
    "age": ("integer", [17 + n for n in range(ROWS)]),
    "gain": ("integer", [0] * 30 + [12345 * n for n in range(10)]),
    "price": ("float", [1.25 * n - 3 for n in range(ROWS)]),
    "zip": ("categorical", [f"{n % 7:05d}" for n in range(ROWS)]),
    "born": ("date", [dt.date(1950, 3, 4) + dt.timedelta(days=400 * n) for n in range(ROWS)]),
    "seen": ("datetime", [dt.datetime(2020, 1, 1, 8, n) for n in range(ROWS)]),
    "yes": ("boolean", [n % 3 == 0 for n in range(ROWS)]),
    "answer": ("boolean", ["no", "yes"] * 20),
    'odd "name", größe': ("categorical", ["a", None, "null", "1e5"] * 10),
    "true": ("categorical", ["x", "y"] * 20),
}
TYPES = {name: kind for name, (kind, _) in COLUMNS.items()}
FRAME = pd.DataFrame({name: cells for name, (_, cells) in COLUMNS.items()}).assign(nothing=None)
BOUNDS = {
    "age": (0, 120),
    "gain": (0, 120_000),
    "price": (-5.0, 50.0),
    "born": (dt.date(1950, 1, 1), dt.date(1992, 12, 31)),
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_types_and_bounds_are_guessed_and_marked_and_the_table_fits_them(drafted, kind):
    _, spec = drafted(FRAME, f"people.{kind}")
    attributes = spec.attributes
    assert {name: attribute.type for name, attribute in attributes.items()} == TYPES
    assert data_derived(spec) == list(FRAME.columns.drop("nothing"))
    assert spec.ignore == ("nothing",)
    nullable = [name for name, attribute in attributes.items() if attribute.nullable]
    assert nullable == ['odd "name", größe']
    assert attributes["gain"].special == [0]
    assert attributes["seen"].step == 60
    text = ("encoding", "delimiter", "numbers", "missing") if kind == "csv" else ()
    assert set(spec.unconfirmed) == {"names", "ignore", "types", *text}
    bounds = {name: (attributes[name].min, attributes[name].max) for name in BOUNDS}
    assert bounds == BOUNDS
    others = {name: attribute for name, attribute in attributes.items() if name != "uuid"}
    frame = read_frame(spec).drop(columns="uuid")
    assert validate_rows(frame, spec.model_copy(update={"attributes": others}))[1].valid


def test_delimiter_and_missing_tokens_are_found(drafted):
    _, spec = drafted("a;b\n1;NA\n2;3\n?;4\n")
    assert spec.source.delimiter == ";"
    assert set(spec.source.missing) == {"", "NA", "?"}
    assert [attribute.type for attribute in spec.attributes.values()] == ["integer", "integer"]


@pytest.mark.parametrize(
    ("usual", "odd", "said"),
    [
        ("42", "unknown", "whole numbers"),
        ("42", "4.5", "whole numbers"),
        ("4.5", "none", "numbers"),
        ("yes", "maybe", "yes"),
        ("2020-01-01", "01/02/2020", "dates"),
        ("2020-01-01", "2020-01-01T10:00:00", "dates"),
    ],
)
def test_a_few_odd_cells_that_decided_a_type_are_remarked(drafted, usual, odd, said):
    for cells, remarked in (
        ([usual] * 99 + [odd], True),
        ([usual] * 100, False),
        ([usual] * 9 + [odd], False),
    ):
        text, _ = drafted("x\n" + "\n".join(cells) + "\n")
        assert (f"; all but 1 of 100 values are {said}\n" in text) is remarked
        assert ("all but" in text) is remarked


def test_a_remark_names_the_words_that_occur(drafted):
    text, _ = drafted("x\n" + "yes\nno\n" * 1_000 + "maybe\n")
    assert "; all but 1 of 2,001 values are yes or no\n" in text


def test_unusual_dtypes_are_kept(drafted):
    frame = pd.DataFrame({"small": [1, 2], "half": [0.5, 1]})
    frame = frame.astype({"small": "int8", "half": "float32"})
    attributes = drafted(frame, "native.parquet")[1].attributes
    assert (attributes["small"].dtype, attributes["half"].dtype) == ("int8", "float32")


@settings(max_examples=examples(30))
@given(
    names=st.lists(st.text(max_size=8).filter(str.strip), min_size=1, max_size=4, unique=True),
    cells=st.lists(st.text(max_size=6).filter(str.strip), min_size=2, max_size=5, unique=True),
)
def test_any_names_and_texts_survive_the_draft(drafted, names, cells):
    _, spec = drafted(pd.DataFrame({name: cells for name in names}), "any.parquet")
    assert list(spec.attributes) == names
    assert validate_rows(read_frame(spec), spec)[1].valid


def test_a_column_without_a_name_is_left_out(tmp_path, drafted):
    """Numbers of rows that a program has written as first column, under no name."""
    _, spec = drafted(pd.DataFrame({"a": range(30), "b": ["x", "y", "z"] * 10}).to_csv())
    assert (list(spec.attributes), spec.ignore) == (["a", "b"], ("",))
    assert list(read_frame(spec)) == ["a", "b"]
    assert ignored_columns(spec) == ("(without a name)",)
    (tmp_path / "nameless.csv").write_text(",\n1,\n")
    with pytest.raises(DataError, match="more than once|no column with a name"):
        draft(tmp_path / "nameless.csv")


def test_files_without_a_table_are_refused(tmp_path):
    cases = {"": "is empty", "a,b\n": "no rows", "a,a\n1,2\n": "more than once"}
    for content, words in cases.items():
        (tmp_path / "bad.csv").write_text(content)
        with pytest.raises(DataError, match=words):
            draft(tmp_path / "bad.csv")
    with pytest.raises(StorageError, match="cannot be read"):
        draft(tmp_path / "none.csv")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_utf_16_is_recognised_by_its_mark_or_its_empty_bytes(drafted, encoding, mark):
    _, spec = drafted(f"{mark}größe;n\n日;1.5\nx;2.5\n", encoding=encoding)
    assert spec.source.encoding == encoding
    assert spec.source.delimiter == ";"
    assert list(spec.attributes) == ["größe", "n"]
    assert validate_rows(read_frame(spec), spec)[1].valid


@pytest.mark.parametrize(
    ("cells", "form", "step"),
    [
        (["1997-12-04T15:55:49.123", "1997-12-05T01:00:00.100"], "%Y-%m-%dT%H:%M:%S.%3f", 0.001),
        (["1997-12-04 15:55:49.123456Z"], "%Y-%m-%d %H:%M:%S.%6fZ", 1e-6),
        (["1997-12-04 15:55:49.5", "1997-12-04 15:55:49.25"], "%Y-%m-%d %H:%M:%S.%f", 0.01),
        (["1997-12-04T15:55:49+02:00", "1997-12-05T00:00:07+02:00"], "%Y-%m-%dT%H:%M:%S+02:00", 1),
        (["1997-12-04T15:55:49-0530"], "%Y-%m-%dT%H:%M:%S-0530", 1),
        (["1997-12-04T15:55:49+02:00", "1997-12-05T00:00:07+01:00"], "%Y-%m-%dT%H:%M:%S%:z", 1),
        (["1997-12-04T15:55:49+02:00", "1997-12-05T00:00:07Z"], "%Y-%m-%dT%H:%M:%S%:z", 1),
        (["1997-12-04T15:55:49.123456", "1997-12-04T15:55:49"], None, 1e-6),
        (["1997-12-04T15:55:49.000", "1997-12-04T15:55:50.000"], "%Y-%m-%dT%H:%M:%S.000", 1),
    ],
)
def test_fractions_of_seconds_and_distances_from_utc_are_recognised(drafted, cells, form, step):
    _, spec = drafted("at,n\n" + "".join(f"{cell},{index}.5\n" for index, cell in enumerate(cells)))
    attribute = spec.attributes["at"]
    assert (attribute.format, attribute.step) == (form, step)
    assert validate_rows(read_frame(spec), spec)[1].valid


@pytest.mark.parametrize(
    ("columns", "proposed"),
    [
        ({"sex": ["F", "M"] * 20, "age": range(40), "bad": ["1"] * 9 + ["0"] * 31}, "bad"),
        ({"a: #b": ["no"] * 25 + ["yes"] * 15, "sex": ["F", "M"] * 20, "age": range(40)}, "a: #b"),
        ({"age": range(40), "flag": [True] + [False] * 39, "sum": range(40)}, "flag"),
        ({"age": range(40), "ward": ["A", "B", "C", "D"] * 10}, None),
    ],
)
@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_a_column_of_two_values_is_proposed_as_what_analysts_predict(
    tmp_path, drafted, columns, proposed, name
):
    frame = pd.DataFrame(columns)
    text, spec = drafted(frame, name)
    assert not spec.evaluation.targets
    (tmp_path / "draft.yaml").write_text(text.replace("# evaluation:", "evaluation:"))
    accepted = load_spec(tmp_path / "draft.yaml")
    assert list(accepted.evaluation.targets) == ([] if proposed is None else [proposed])
    for positive in accepted.evaluation.targets.values():
        assert [str(value) for value in positive] == [str(frame[proposed].value_counts().index[-1])]


def test_a_packed_file_that_is_too_long_unpacked_is_refused(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "long.csv.gz", "wb") as file:
        file.write(b"a,b\n" + b"1,2\n" * (1 << 20))
    monkeypatch.setattr("cloister.schema.drafts.drafting.MOST_BYTES", 3 << 20)
    with pytest.raises(DataError, match="more than 3 MiB unpacked"):
        draft(tmp_path / "long.csv.gz")
