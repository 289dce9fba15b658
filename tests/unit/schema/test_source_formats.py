"""What is written as CSV has the declared formats of its source, and is read back as it was."""

import string

import numpy as np
import pandas as pd
import pytest
from declared_table import MOMENT, WHOLE, declared
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from validated_rows import validate_rows

from cloister.errors import DataError, SpecError
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.reading import read_frame
from cloister.schema.written_moments import MICROS, written_micros
from cloister.tasks.data.tables import write_csv, write_table

DAYS = ["%d/%m/%Y", "%-m/%-d/%y", "%Y%m%d", "%d. %B %Y", "%b-%d-%Y", "%Y-%m-%d", None]
CLOCKS = ["T%H:%M:%S", " %H:%M:%S.%fZ", ", %-I:%M:%S %p", " %H:%M:%S.000+00:00"]
FRACTIONS = [
    *("T%H:%M:%S.%3f", " %H:%M:%S.%6f+02:00", "T%H:%M:%S.%f%:z", " %-I:%M:%S.%1f %p -0530"),
    *("T%H:%M:%S.%fZ", "T%H%M%S.%6f%z", " %H:%M:%S.%4f +14"),
]
NUMBERS = ["%.2f", "%'.2f", "%.5f", "$%'.2f", "%.2f £", "%g", "%'g €", None]
WHOLES = ["%d", "%'d", "%06d", "%.1f", "%d%%", "No. %d", None]
ENCODINGS = ["utf-8", "latin-1", "cp1252", "iso-8859-15"]
WIDE = ["utf-16-le", "utf-16-be"]
STEPS = [60, 1, 0.5, 0.001, 1e-6]
MISSING = ["", "NA", "n/a", "--"]
LATIN = [chr(code) for code in range(0xA1, 0x100) if code != 0xAD]


words = st.text(
    st.sampled_from(string.ascii_letters + " ,;\"'\n\r\t日😀" + "".join(LATIN)), max_size=6
)


@st.composite
def specs(draw):
    marks = [{"thousands": ","}, {"decimal": ",", "thousands": "."}, {"thousands": "'"}]
    source = {
        "delimiter": draw(st.sampled_from([",", ";", "\t", "|"])),
        "encoding": draw(st.sampled_from([*ENCODINGS, *WIDE])),
        "missing": draw(st.permutations(MISSING)),
        **draw(st.sampled_from(marks)),
    }
    form = draw(st.sampled_from(DAYS[:-1])) + draw(st.sampled_from(CLOCKS + FRACTIONS))
    steps = [step for step in STEPS if step * MICROS % written_micros(form) == 0]
    step = draw(st.sampled_from(steps))
    moment = {"type": "datetime", "min": "1969-01-02", "max": "2068-12-30", "step": step}
    known = words.filter(lambda word: word not in MISSING and can(word, source["encoding"]))
    numbers = [form for form in NUMBERS if can(form or "", source["encoding"])]
    listed = draw(st.lists(known, min_size=1, max_size=4, unique=True))
    flag = draw(st.sampled_from([("1", "0"), ("Y", "N"), ("True", "False"), ("oui", "non")]))
    attributes = {
        "déjà vu %": {"type": "categorical", "values": listed},
        "flag": {"type": "boolean", "true": flag[0], "false": flag[1]},
        "whole": {"type": "integer", "min": -50_000, "max": 9_999_999},
        "amount": {"type": "float", "min": -5000, "max": 99_999, "decimals": 2},
        "listed": {"type": "ordinal", "values": [0.5, 1000.25, 7.0]},
        "day": {"type": "date", "min": "1969-01-01", "max": "2068-12-31"},
        "at": {**moment, "format": form},
        "plain": moment,
        "key": {"type": "text", "pattern": draw(st.sampled_from(["{1..9999}", "N°{0001..9999}"]))},
    }
    for name, forms in (("whole", WHOLES), ("amount", numbers), ("day", DAYS)):
        attributes[name]["format"] = draw(st.sampled_from(forms))
    for keys in attributes.values():
        keys["nullable"] = draw(st.booleans())
        keys["missing"] = draw(st.sampled_from([None, *MISSING]))
    plain = {name: {k: v for k, v in a.items() if v is not None} for name, a in attributes.items()}
    return plain, source


def can(word, encoding):
    try:
        word.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


@settings(max_examples=examples(30))
@given(specs(), st.integers(0, 2**32 - 1))
def test_a_synthetic_table_is_read_back_as_it_was_drawn(tmp_path, drawn, seed):
    spec = declared(tmp_path, *drawn)
    rng = np.random.default_rng(seed)
    domain = Domain.of(spec.attributes, spec.folder)
    table = Table(domain, {c.name: rng.integers(0, c.size, 40) for c in domain})
    write_table(table, tmp_path / "table.parquet")
    write_csv(tmp_path / "table.parquet", tmp_path / "table.csv", spec)
    frame, report = validate_rows(read_frame(spec, tmp_path / "table.csv"), spec)
    assert report.valid
    encoded = domain.encode(frame)
    for name in domain.names:
        np.testing.assert_array_equal(encoded.codes[name], table.codes[name], name)


def validated(tmp_path, text, attributes, source=(), **more):
    """A spec whose file holds a text in such an encoding, and its valid rows."""
    path, source = tmp_path / "table.csv", dict(source)
    path.write_text(text, encoding=source.get("encoding"))
    spec = declared(tmp_path, attributes, {"path": str(path), **source}, **more)
    frame, report = validate_rows(read_frame(spec), spec)
    return spec, frame, report


def written(tmp_path, spec, frame):
    """The text in which a release writes such rows."""
    write_table(Domain.of(spec.attributes, spec.folder).encode(frame), tmp_path / "o.parquet")
    write_csv(tmp_path / "o.parquet", tmp_path / "o", spec)
    return (tmp_path / "o").read_text(encoding=spec.source.encoding)


MARKS = {"delimiter": ";", "decimal": ",", "thousands": "."}


def test_the_text_of_a_source_comes_back(tmp_path):
    text = (
        "id;größe;preis;seit;am;ok;code;nix\n"
        "1;Zoë;1.234,50;04.12.1997;1997-12-04T15:55:49;1;7,0;x\n"
        '2;"a;b";-0,25;01.01.2000;2000-01-01T00:00:00;0;NA;\n'
    )
    source = {**MARKS, "encoding": "latin-1", "missing": ["NA"]}
    ends = {"min": "1990-01-01", "max": "2005-01-01"}
    attributes = {
        "id": {"type": "text", "pattern": "{1..99}"},
        "größe": {"type": "categorical", "values": ["Zoë", "a;b"]},
        "preis": {"type": "float", "min": -1, "max": 9999, "decimals": 2, "format": "%'.2f"},
        "seit": {"type": "date", **ends, "format": "%d.%m.%Y"},
        "am": {"type": "datetime", **ends, "format": "%Y-%m-%dT%H:%M:%S"},
        "ok": {"type": "boolean", "true": "1", "false": "0"},
        "code": {"type": "float", "min": 0, "max": 9, "decimals": 0, "nullable": True},
    }
    spec, frame, report = validated(tmp_path, text, attributes, source, ignore=["nix"])
    assert report.valid
    assert list(frame["größe"]) == ["Zoë", "a;b"]
    assert list(frame["preis"]) == [1234.5, -0.25]
    assert frame["am"][0] == pd.Timestamp("1997-12-04 15:55:49")
    expected = "\n".join(line.rpartition(";")[0] for line in text.splitlines()) + "\n"
    assert written(tmp_path, spec, frame) == expected


NUMBER = {"type": "float", "min": 0, "max": 10**9}
DAY = {"type": "date", "min": "2000-01-01", "max": "2030-01-01", "format": "%d/%m/%Y"}
AT = {**MOMENT, "min": "1990-01-01", "format": "%Y-%m-%dT%H:%M:%S.%3f+02:00"}


@pytest.mark.parametrize(
    ("cell", "attribute"),
    [
        ("1.5", NUMBER),
        *((cell, {**NUMBER, "type": "integer"}) for cell in ("12,34", "1.23.456")),
        *((cell, DAY) for cell in ("now", "2020-01-01", "31/02/2020", "1/1/2020", "01/01/2020 ")),
        *((f"1997-12-04T15:55:49{end}", AT) for end in (".12+02:00", ".123+01:00", ".123")),
    ],
)
def test_a_cell_in_another_form_than_declared_is_refused(tmp_path, cell, attribute):
    with pytest.raises(DataError, match="column 'x': 1 value"):
        validated(tmp_path, f"x;y\n{cell};1\n", {"x": attribute, "y": WHOLE}, MARKS)


FAR = {**MOMENT, "special": ["9999-12-31T23:59:59"]}


@pytest.mark.parametrize(
    ("attributes", "source", "words"),
    [
        ({"a": WHOLE}, {"encoding": "utf-32"}, "is no encoding that can be read"),
        ({"a": WHOLE}, {"encoding": "utf-16"}, "write utf-16-le if the file begins with"),
        ({"a": WHOLE}, {"encoding": "latin-1", "missing": ["–"]}, "letters that are not in"),
        ({"ł": WHOLE}, {"encoding": "latin-1"}, "letters that are not in latin-1"),
        ({"a": WHOLE}, {"decimal": ",", "thousands": ","}, "the same mark"),
        ({"a": {**WHOLE, "format": "%'d"}}, {}, "declare source.thousands"),
        ({"a": {**WHOLE, "format": "%x"}}, {}, "the form of a number"),
        ({"a": {**WHOLE, "format": "%g"}}, {}, "the form of a number"),
        ({"a": {**WHOLE, "type": "float", "format": "%05g"}}, {}, "the form of a number"),
        ({"a": {**WHOLE, "max": 300, "dtype": "int8"}}, {}, "cannot hold all declared values"),
        ({"a": {**WHOLE, "nullable": True, "dtype": "int8"}}, {}, "cannot hold all declared"),
        ({"a": {**WHOLE, "special": [999], "dtype": "int8"}}, {}, "cannot hold all declared"),
        ({"a": {"type": "text", "pattern": "P{1..9}", "dtype": "int64"}}, {}, "cannot hold"),
        ({"a": {**WHOLE, "dtype": "int9"}}, {}, "cannot hold all declared values"),
        ({"a": {**WHOLE, "missing": "NA"}}, {}, "none of source.missing"),
        ({"a": {**MOMENT, "format": "%d/%m/%Y %H:%M"}}, {}, "declare step: 60"),
        ({"a": {**MOMENT, "format": "%d/%m/%y %H:%M:%S", "max": "2100-01-01"}}, {}, "two digits"),
        ({"a": {**MOMENT, "format": "%H:%M:%S"}}, {}, "year, month and day"),
        ({"a": {**MOMENT, "format": "%Y-%m-%d %I:%M:%S"}}, {}, "%I without %p"),
        ({"a": {**MOMENT, "step": 0.001, "format": "%Y-%m-%d %H:%M:%S"}}, {}, "declare step: 1"),
        ({"a": {**MOMENT, "step": 1e-6, "format": "%Y-%m-%d %H:%M:%S.%3f"}}, {}, "step: 0.001"),
        ({"a": {**MOMENT, "step": 1e-7}}, {}, "at most six decimal places"),
        ({"a": {**MOMENT, "step": 0}}, {}, "at most six decimal places"),
        ({"a": {**MOMENT, "step": 1e-6, "max": "9999-12-31"}}, {}, "declare step: 0.0001"),
        ({"a": {**MOMENT, "step": 0.001, "dtype": "datetime64[s]"}}, {}, "cannot hold all"),
        ({"a": {**FAR, "format": "%Y-%m-%d %H:%M:%S+02:00"}}, {}, "no year of four digits"),
        ({"a": {**MOMENT, "type": "date", "format": "%Y-%m-%d%z"}}, {}, "use type datetime"),
        ({"a": {**MOMENT, "type": "date", "format": "%Y-%m-%d %H"}}, {}, "use type datetime"),
    ],
)
def test_formats_that_cannot_be_kept_are_told(tmp_path, attributes, source, words):
    with pytest.raises(SpecError, match=words):
        declared(tmp_path, attributes, source)


@pytest.mark.parametrize(
    ("form", "step", "text", "utc", "end"),
    [
        ("%Y-%m-%dT%H:%M:%S.%3f", 0.001, "1997-12-04T15:55:49.123", "15:55:49.123", None),
        ("%Y-%m-%dT%H:%M:%S.%6f", 1e-6, "1997-12-04T15:55:49.123456", "15:55:49.123456", None),
        ("%Y-%m-%dT%H:%M:%S.%f", 1e-6, "1997-12-04T15:55:49.5", "15:55:49.5", "15:55:49.500000"),
        ("%Y-%m-%dT%H:%M:%S.%fZ", 0.001, "1997-12-04T15:55:49.1239Z", "15:55:49.123", "49.123000Z"),
        (None, 0.01, "1997-12-04T15:55:49.12", "15:55:49.12", "1997-12-04 15:55:49.12"),
        ("%Y-%m-%dT%H:%M:%S+02:00", 1, "1997-12-04T15:55:49+02:00", "13:55:49", None),
        ("%Y-%m-%dT%H:%M-0530", 60, "1997-12-04T15:55-0530", "21:25", None),
        ("%Y-%m-%d %H:%M:%S +01", 1, "1997-12-04 15:55:49 +01", "14:55:49", None),
        ("%Y-%m-%dT%H:%M:%S%:z", 1, "1997-12-04T15:55:49+02:00", "13:55:49", "T13:55:49+00:00"),
        ("%Y-%m-%dT%H:%M:%S%:z", 1, "1997-12-04T15:55:49Z", "15:55:49", "T15:55:49+00:00"),
        ("%Y-%m-%dT%H:%M:%S%z", 1, "1997-12-04T15:55:49-0130", "17:25:49", "T17:25:49+0000"),
    ],
)
def test_a_moment_is_kept_in_utc_and_written_in_its_form(tmp_path, form, step, text, utc, end):
    keys = {**MOMENT, "min": "1990-01-01", "step": step} | ({"format": form} if form else {})
    spec, frame, _ = validated(tmp_path, f"a,b\n{text},1\n", {"a": keys, "b": WHOLE})
    kept = Domain.of(spec.attributes, spec.folder).encode(frame).frame()
    assert kept["a"][0] == pd.Timestamp(f"1997-12-04 {utc}")
    cell = written(tmp_path, spec, frame).splitlines()[1].removesuffix(",1")
    assert cell == text if end is None else cell.endswith(end)


def test_moments_are_clipped_to_their_grid_of_fractions(tmp_path):
    text = "a,b\n2040-01-01 00:00:00.7,1\n2001-01-01 00:00:00.25,1\n"
    keys = {**MOMENT, "max": "2030-01-01T00:00:00.6", "step": 0.25}
    clip = {"on_invalid": "clip"}
    _, frame, _ = validated(tmp_path, text, {"a": keys, "b": WHOLE}, validation=clip)
    moments = ["2030-01-01 00:00:00.5", "2001-01-01 00:00:00.25"]
    assert list(frame["a"]) == [pd.Timestamp(moment) for moment in moments]
