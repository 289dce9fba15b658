"""What a draft makes of codes, flags, keys, usual ranges, and of a file in a local dialect."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from extract import EMPTY, KINDS, declare_draft, extract, write_extract
from shape import Shape, release_once
from validated_rows import validate_rows

from cloister.schema.domain import Domain
from cloister.schema.drafts.drafting import draft
from cloister.schema.drafts.numbers import bins_of, decimals_of, number_format
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.spec_files.yaml_text import read_marked
from cloister.tasks.data.tables import write_csv, write_table

ROWS = 60


@pytest.fixture
def column(tmp_path, drafted):
    """The drafted attribute of a column of texts, as plain values, and the comment beside it."""

    def make(name, cells):
        text, spec = drafted(pd.DataFrame({name: list(cells), "other": "x"}))
        assert validate_rows(read_frame(spec), spec)[1].valid
        keys = read_marked(tmp_path / "draft.yaml").content["attributes"][name]
        return keys, text.partition("provenance: data-derived} # ")[2].partition("\n")[0]

    return make


def some(*values):
    return [values[index * 7 % len(values)] for index in range(ROWS)]


def units(form):
    return [form.format(1 + index % 30) for index in range(ROWS)]


def accounts(form):
    amounts = [(index * 7919) % 4001 - 2000 for index in range(ROWS)]
    return [f"({form.format(-n)})" if n < 0 else form.format(n) for n in amounts]


DIGITS = [str(35_000 + 13 * n) for n in range(12)]
LISTED = {"type": "categorical", "values": DIGITS}


@pytest.mark.parametrize(
    ("name", "cells", "expected"),
    [
        ("ZipCode", some(*DIGITS), LISTED),
        ("number of rooms", some("1", "2", "9"), {"type": "integer", "min": 1, "max": 9}),
        ("userId", [str(7 * n) for n in range(ROWS)], {"type": "text", "pattern": "{1..999}"}),
        ("PHONE", [f"{n:05d}" for n in range(ROWS)], {"type": "text", "pattern": "{00001..99999}"}),
        ("x", [str(n + 1) for n in range(ROWS)], {"type": "text", "pattern": "{1..99}"}),
        ("userId", some(*DIGITS, *map(str, range(11))), {"type": "text", "pattern": "{1..99999}"}),
        ("patient", some(*(f"P{n:03d}" for n in range(30))), {"pattern": "P{000..999}"}),
        ("flag", some("0", "1"), {"type": "boolean", "true": "1", "false": "0"}),
        ("day", some("3", "28"), {"type": "integer", "min": 1, "max": 31}),
        ("day", some("3", "40"), {"type": "integer", "min": 0, "max": 40}),
        ("day_of_week", some("1", "7"), {"type": "integer", "min": 1, "max": 7}),
        ("year", some("2013", "2019"), {"type": "integer", "min": 2010, "max": 2020}),
        ("delay", some("-80", "1300"), {"type": "integer", "min": -100, "max": 1300, "bins": 50}),
        ("sold", [str(n**4) for n in range(ROWS)], {"type": "integer", "bins": 50, "scale": None}),
        ("sold", [*map(str, range(59)), "7777"], {"type": "integer", "bins": 50, "scale": "log"}),
        ("distance", some("17", "4983"), {"type": "integer", "min": 0, "max": 5000, "bins": 50}),
        ("x", [str(n + 100_001) for n in range(ROWS)], {"type": "text", "pattern": "{1..999999}"}),
        ("x", [str(n + 67) for n in range(ROWS)], {"type": "integer"}),
        ("year", [str(n + 1900) for n in range(ROWS)], {"type": "integer", "min": 1900}),
        ("respondent", [str(3 * n + 7) for n in range(ROWS)], {"type": "text"}),
        ("x", [str(10**19 + 7 * n) for n in range(ROWS)], {"type": "text"}),
        ("x", [f"A{10**19 + 7 * n}" for n in range(ROWS)], {"type": "text"}),
        ("Q1", some("0", "4", "10", "99"), {"min": 0, "max": 10, "special": [99]}),
        ("Q1", some("-9", "-1", "1", "5"), {"min": 1, "max": 5, "special": [-9, -1]}),
        ("sold", some(*map(str, range(30)), "99", "120"), {"max": 120, "special": None}),
        ("x", some("-1", "-3", "2"), {"min": -3, "max": 2, "special": None}),
        ("insured", some("5000", "10000", "500000"), {"special": [5000, 10000, 500000]}),
        ("x", some("2.5e-9", "3.1e-6", "4e-7"), {"type": "float", "decimals": 10}),
        ("x", some("1.00000001", "1.00000002"), {"type": "float", "decimals": 11}),
        ("x", some("1e-30", "4e-30"), {"type": "float", "decimals": 12}),
        ("when", some("3/4/2020", "12/24/2020"), {"type": "date", "format": "%-m/%-d/%Y"}),
        ("when", some("2020-01-02 00:00:00"), {"type": "date", "format": "%Y-%m-%d 00:00:00"}),
        ("at", some("04.12.1997 15:55"), {"format": "%d.%m.%Y %H:%M", "step": 60}),
        ("at", some("1997-12-04T15:55:49Z"), {"format": "%Y-%m-%dT%H:%M:%SZ"}),
        ("n", some("2.0", "11.0", ""), {"type": "integer", "format": "%.1f"}),
        ("n", some("1,234", "5,000,000", "7"), {"type": "integer", "format": "%'d"}),
        ("n", some("0.50", "11.25"), {"type": "float", "decimals": 2, "format": "%.2f"}),
        ("kg", some("3", "3.5", "-12.25"), {"type": "float", "decimals": 2, "format": "%g"}),
        ("kg", some("3", "3.50"), {"type": "float", "format": None}),
        ("kg", [*units("{} kg"), "1.5 kg"], {"type": "float", "format": "%g kg"}),
        ("x", some("1e3", "2.5"), {"type": "float", "format": None}),
        ("lat", some("46.5", "47.25"), {"type": "float", "min": -90.0, "max": 90.0}),
        ("score", some("1", "9"), {"type": "integer", "min": 1, "max": 10}),
        ("price", units("{},50 €"), {"type": "float", "format": "%.2f €", "min": 0.0, "max": 35.0}),
        ("pay", units("${},000"), {"type": "integer", "format": "$%'d", "max": 30000}),
        ("net", accounts("{:,.2f}"), {"type": "integer", "format": "%('.2f"}),
        ("net", accounts("{:d}.25 €"), {"type": "float", "format": "%(.2f €", "decimals": 2}),
        ("area", units("({}15)"), {"type": "categorical"}),
        ("hba1c", units("{}.5 %"), {"type": "float", "format": "%.1f %%", "decimals": 1}),
        ("x", units("{}A"), {"type": "categorical"}),
        ("kg", some("0,991", "1,234", "12,500"), {"type": "float", "max": 13.0, "decimals": 3}),
        ("pay", [str(1_200 + 100 * index) for index in range(ROWS)], {"step": 100, "min": 1000}),
        ("pay", [str(100 * index) for index in range(25)] * 3, {"step": 100, "bins": None}),
        ("pay", [str(1_205 + 100 * index) for index in range(ROWS)], {"step": None}),
        ("kWh per hour", some("1", "3"), {"type": "integer", "max": 3}),
        ("hour", some("1.5", "3.25"), {"type": "float", "max": 3.3}),
        ("at", units("2020-01-{:02d} 13:30:00"), {"step": 1800}),
        ("at", some("04/Mar/2024:00:00:09 +0000"), {"format": "%d/%b/%Y:%H:%M:%S +0000"}),
        ("when", some("2020-03-05", "2020-03-06"), {"min": "2020-03-05", "max": "2020-03-06"}),
        ("when", some("2020-03-05", "2021-02-06"), {"min": "2020-01-01", "max": "2021-12-31"}),
        ("at", some("2020-12-31 13:00:00"), {"max": "2020-12-31T23:59:59"}),
        ("lat", some("46.5", "47.25"), {"bins": 500}),
        (
            "n",
            some(*map(str, range(22)), *["unbekannt"] * 3),
            {"type": "integer", "nullable": True},
        ),
        ("Month", some("3", "12"), {"type": "integer", "min": 1, "max": 12}),
        ("dep_hour", some("3", "12"), {"type": "integer", "min": 0, "max": 23}),
        ("Q1", some("1", "2", "5", "98", "99"), {"min": 1, "max": 5, "special": [98, 99]}),
        ("kg", some("3", "1,234.5", "-0.5"), {"type": "float", "format": "%'g"}),
        ("quota", units("{}%"), {"type": "integer", "format": "%d%%"}),
        ("net", accounts("${:d}"), {"type": "integer", "format": "$%(d"}),
        ("x", some("10 mg", "20 mg"), {"type": "categorical"}),
    ],
)
def test_a_column_is_guessed_and_the_reason_is_said(column, name, cells, expected):
    keys, said = column(name, cells)
    assert {key: keys.get(key) for key in expected} == expected
    assert len(said) > 20


@pytest.mark.parametrize(
    ("cells", "remark"),
    [
        ([*(f"{n},50 €" for n in range(57)), "1 $", "2 $", "3 $"], "write the numbers alone"),
        ([*(f"$ {n}.50" for n in range(57)), "€ 1", "$ ?", "£ 3"], "60 texts; give the public"),
        ([*(f"{n}.5" for n in range(59)), "<0.5"], "write a number in its place"),
        ([f"10.{n}.0.{n}" for n in range(60)], "60 texts; give the public list"),
        ([f"unit {n}" for n in range(60)], "one word and a number: type text with a pattern"),
        ([f"{n} {n} in {n}" for n in range(60)], "60 texts; give the public list"),
    ],
)
def test_numbers_in_texts_are_remarked(column, cells, remark):
    assert remark in column("x", cells * 2)[1]


def test_a_day_that_may_be_a_month_and_clock_times_are_remarked(column):
    assert "other way round" in column("when", some("03/04/2020", "05/06/2021"))[1]
    assert "other way round" not in column("when", some("03/04/2020", "25/06/2021"))[1]
    clock = [f"{hour}{minute:02d}" for hour in range(1, 24) for minute in (5, 35, 59)]
    assert "hhmm" in column("departure", clock)[1]
    assert "hhmm" not in column("departure", [*clock, "1261"])[1]


def test_flags_and_keys_of_parquet_keep_their_types(drafted):
    frame = pd.DataFrame({"id": np.arange(ROWS) + 100, "flag": np.arange(ROWS) % 2})
    frame["sick"] = frame["flag"].astype("Int8").mask(frame["flag"] == 1)
    frame["tens"] = np.tile(np.arange(-12, 13, dtype="int8") * 10, ROWS)[:ROWS]
    frame["small"] = np.arange(ROWS, dtype="int8") + 67
    frame["long"] = np.uint64(2**63) + np.arange(ROWS, dtype="uint64")
    frame["large"] = np.where(np.arange(ROWS) < 9, -5, 10**18 - 1 - np.arange(ROWS))
    _, spec = drafted(frame, "native.parquet")
    types = [attribute.type for attribute in spec.attributes.values()]
    assert types == ["text", "boolean", "boolean", "integer", "integer", "text", "integer"]
    assert (spec.attributes["small"].max, spec.attributes["large"].max) == (127, 10**18 - 1)
    typed, report = validate_rows(read_frame(spec), spec)
    assert report.valid
    again = Domain.of(spec.attributes, spec.folder).encode(typed).frame()
    dtypes = "int64 int64 Int8 int8 int8 uint64 int64"
    assert " ".join(map(str, again.dtypes)) == dtypes
    pd.testing.assert_series_equal(again["flag"], frame["flag"])


def drafted_extract(tmp_path, rows, columns):
    write_extract(extract(rows, columns), tmp_path / "extract.csv")
    (tmp_path / "draft.yaml").write_text(draft(tmp_path / "extract.csv"), encoding="utf-8")
    return load_spec(tmp_path / "draft.yaml")


def test_an_extract_is_drafted_as_a_person_would_declare_it(tmp_path):
    spec = drafted_extract(tmp_path, 200, 31)
    assert {name: spec.attributes[name].type for name in KINDS} == KINDS
    assert spec.ignore == EMPTY
    source = spec.source
    assert (source.delimiter, source.encoding, source.decimal) == (";", "latin-1", ",")
    assert set(source.missing) == {"", "NA", "?"}
    entered = spec.attributes["erfasst am"]
    assert (entered.format, entered.missing) == ("%Y-%m-%dT%H:%M:%S", "?")
    assert spec.attributes["children"].format == "%.1f"
    numbered = [spec.attributes[name].type for name in spec.attributes if name not in KINDS]
    kinds = ("boolean", "float", "integer", "categorical")
    assert numbered == [kinds[index % 4] for index in range(len(numbered))]


FORMS = {
    "1 id nr.": r"\d+",
    "Telefon": r"0\d{9}",
    "PLZ": r"\d{4}",
    "Einkommen (Fr.)": r"\d+,\d\d|\?",
    "% Anteil": r"\d+,\d|NA",
    "children": r"\d+,0|NA",
    "erfasst am": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\?",
    "geboren": r"\d\d\.\d\d\.\d{4}",
    "verheiratet": "ja|nein",
    "x-10 °C": "0|1",
    "Region": "Zürich|Genève|Ticino|Graubünden",
}


@pytest.mark.parametrize(
    ("rows", "columns", "method"),
    [
        (300, 20, "mixture"),
        pytest.param(1_200, 294, "auto", marks=pytest.mark.slow),  # in fewer rows noise drowns them
    ],
)
def test_a_declared_draft_releases_rows_in_the_formats_of_the_source(
    tmp_path, brief_training, rows, columns, method
):
    drafted_extract(tmp_path, rows, columns)
    path, text = tmp_path / "spec.yaml", (tmp_path / "draft.yaml").read_text(encoding="utf-8")
    path.write_text(declare_draft(text, rows), encoding="utf-8")
    spec = load_spec(path)
    shape = Shape(read_frame(spec), read_marked(path).content)
    table = release_once(shape, 1, method, "1e-7").synthetic
    write_table(table, tmp_path / "synthetic.parquet")
    write_csv(tmp_path / "synthetic.parquet", tmp_path / "synthetic.csv", spec)
    text = (tmp_path / "synthetic.csv").read_text(encoding="latin-1")
    assert "none" not in text.lower()
    released = pd.read_csv(
        tmp_path / "synthetic.csv", sep=";", encoding="latin-1", dtype=str, keep_default_na=False
    )
    assert list(released) == [name for name in extract(9, columns) if name not in EMPTY]
    assert len(released) == rows
    for name, form in FORMS.items():
        assert released[name].str.fullmatch(form).all(), name
    frame, report = validate_rows(read_frame(spec, tmp_path / "synthetic.csv"), spec)
    assert report.valid
    pd.testing.assert_frame_equal(table.domain.encode(frame).frame(), table.frame())


def test_a_flag_written_as_decimals_does_not_decide_the_decimal_mark(drafted):
    amounts = [f"{n},{n % 10}5" for n in range(ROWS)]
    frame = pd.DataFrame({"flag": some("1.0", "0.0"), "b": some("2.0", "3.0"), "price": amounts})
    _, spec = drafted(frame)
    assert spec.source.decimal == ","
    assert [spec.attributes[name].type for name in ("price", "flag")] == ["float", "boolean"]
    assert validate_rows(read_frame(spec), spec)[1].valid


def test_a_thousands_mark_in_every_number_is_no_decimal_mark():
    texts = pd.Series(["7.675", "-482.625", "10.000.000"])
    assert number_format(texts, whole=True, thousands=".") == "%'d"
    assert number_format(pd.Series(["7.50", "12.00"]), whole=False, thousands=",") == "%.2f"


@pytest.mark.parametrize(("shape", "scale"), [("heavy", "log"), ("normal", None)])
def test_amounts_far_on_both_sides_of_zero_get_bins_that_are_finest_there(shape, scale):
    rng = np.random.default_rng(1)
    heavy = rng.choice([-1, 1], 4_000) * rng.lognormal(6, 0.8, 4_000)
    typed = pd.Series(heavy if shape == "heavy" else rng.normal(0, 400, 4_000))
    assert bins_of(typed, -10_000, 10_000).get("scale") == scale
    assert bins_of(typed.abs(), 0, 10_000).get("scale") is None


@pytest.mark.parametrize(
    ("number", "places"), [(0.0, 0), (5e-324, 12), (1 / 3, 6), (1e300, 0), (0.25, 2)]
)
def test_a_column_of_one_number_has_its_decimals(number, places):
    assert decimals_of(pd.Series([number] * 3)) == places


def test_decimals_of_parquet_are_numbers_and_columns_of_lists_left_out_and_named(drafted):
    cells = [Decimal(7 * n).scaleb(-2) if n % 9 else None for n in range(ROWS)]
    frame = pd.DataFrame({"price": pd.array(cells, pd.ArrowDtype(pa.decimal128(12, 2)))})
    frame["tags"], frame["place"] = [[1, 2]] * ROWS, [{"x": 1}] * ROWS
    _, spec = drafted(frame, "nested.parquet")
    price = spec.attributes["price"]
    assert (price.type, price.decimals, price.nullable) == ("float", 2, True)
    assert (list(spec.ignore), list(spec.attributes)) == (["tags", "place"], ["price"])
    assert validate_rows(read_frame(spec), spec)[1].valid


@pytest.mark.parametrize(("each", "kind"), [(1, "text"), (30, "categorical")])
def test_telephone_numbers_with_a_plus_sign_are_no_quantities(drafted, each, kind):
    numbers = np.random.default_rng(2).choice(10**7, 90, replace=False) + 447910000000
    frame = pd.DataFrame({"line": [f"+{number}" for number in np.repeat(numbers, each)], "a": 1})
    attribute = drafted(frame)[1].attributes["line"]
    assert attribute.type == kind
    assert (attribute.pattern if each == 1 else attribute.values[0]).startswith("+")


def test_changes_with_a_plus_sign_are_quantities_and_the_share_of_missing_texts_is_drafted(column):
    changes = [f"{number:+d}" for number in range(-3_000_000, 3_000_000, 10_001)]
    assert column("change", changes)[0]["type"] == "integer"
    remarks = [f"remark of row {n}: {'x' * (n % 7)}" if n % 10 == 0 else None for n in range(400)]
    guessed, _ = column("remark", remarks)
    assert (guessed["nullable"], guessed["missing_share"]) == (True, 0.9)
