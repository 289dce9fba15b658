"""A file that is read and written with its draft is the same file: a draft finds its formats."""

import datetime as dt
import string

import numpy as np
from examples import examples
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from cloister.schema.domain import Domain
from cloister.schema.drafts.columns import FEWEST_NUMBERS
from cloister.schema.drafts.drafting import draft
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.written_moments import SECONDS_OF_DAY, clock_unit, write_clocks, write_moments
from cloister.schema.written_numbers import Unit, with_unit, write_numbers
from cloister.tasks.data.tables import write_csv, write_table

ROWS = 24
WITH_UNIT = 2  # the position of the column whose numbers have a unit
MARKS = [(".", None), (".", ","), (",", "."), (",", None), (".", "'"), (",", " ")]
DAYS = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%-m/%-d/%y", "%d %b %Y", "%B %-d, %Y", "%Y%m%d"]
CLOCKS = ["T%H:%M:%S", " %H:%M:%S", " %H:%M", " %-I:%M %p", "T%H:%M:%SZ", "T%H:%M:%S.000Z"]
MONTHS = ["%Y-%m", "%m/%Y", "%b %Y", "%B %Y"]
TIMES = ["%H:%M", "%-H:%M:%S", "%I:%M %p", "%-I:%M%P", "%-I:%M:%S %p"]
UNITS = [
    *(Unit("", " €"), Unit("$", ""), Unit("", "%"), Unit("US$ ", ""), Unit("", "\u00a0mg/l")),
    *(Unit("", "", enclosed=True), Unit("$", "", enclosed=True)),
]
NAMES = ["rooms", "preis", "id nr.", "% größe", "3", "a", "A", "wann", "um", "b,c", "d;e"]
PAIRS = [("1", "0"), ("yes", "no"), ("T", "F"), ("TRUE", "FALSE"), ("ja", "nein"), ("1.0", "0.0")]

wholes = st.integers(-(10**7), 10**7)
times = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2060, 1, 1))
words = st.text(string.ascii_letters + " äöüßéÀ'\"", min_size=1, max_size=6).filter(
    lambda word: word.lower() not in ("na", "nan", "null")
)


def many(values):
    return st.lists(values, min_size=ROWS, max_size=ROWS)


def few(values):
    """Cells of so few different values that none is taken for a key."""
    return st.lists(values, min_size=2, max_size=9).flatmap(
        lambda words: many(st.sampled_from(words))
    )


def moments(form):
    def write(drawn):
        return list(write_moments(np.array(drawn, dtype="datetime64[s]"), form))

    return many(times).map(write)


def numbers(values, form, marks, *, unique=False):
    """Numbers; those with a unit of which a few are twice may be categories."""
    drawn = st.lists(values, min_size=ROWS, max_size=ROWS, unique=unique)
    return drawn.map(lambda numbers: list(write_numbers(np.array(numbers), form, *marks)))


def clocks(form):
    drawn = many(st.integers(0, SECONDS_OF_DAY // clock_unit(form) - 1))
    return drawn.map(lambda numbers: list(write_clocks(np.array(numbers), form)))


@st.composite
def tables(draw):
    """The rows of a file as texts, its delimiter and its encoding."""
    decimal, thousands = marks = draw(st.sampled_from(MARKS))
    group = "'" if thousands else ""
    amounts = st.integers(-(10**8), 10**8).map(lambda cents: cents / 100)
    halves = st.integers(-(10**6), 10**6).map(lambda whole: whole / 2)
    unit = with_unit(f"%{group}.2f", draw(st.sampled_from(UNITS)))
    columns = [
        draw(numbers(halves, f"%{group}g", marks)),
        draw(numbers(amounts, f"%{group}.2f", marks)),
        draw(numbers(amounts, unit, marks, unique=True)),
        draw(numbers(wholes, draw(st.sampled_from(["%d", f"%{group}d", "%.1f"])), marks)),
        draw(moments(draw(st.sampled_from([*DAYS, *MONTHS])))),
        draw(clocks(draw(st.sampled_from(TIMES)))),
        draw(moments(draw(st.sampled_from(DAYS)) + draw(st.sampled_from(CLOCKS)))),
        draw(many(st.sampled_from(draw(st.sampled_from(PAIRS))))),
        draw(few(words)),
        draw(st.permutations(range(10**5, 10**5 + ROWS)).map(lambda keys: list(map(str, keys)))),
        draw(few(st.integers(0, 99_999)).map(lambda codes: [f"{code:05d}" for code in codes])),
    ]
    for position, column in enumerate(columns):
        word = draw(st.sampled_from(["NA", "", "?", "NULL"]))
        most = ROWS - FEWEST_NUMBERS if position == WITH_UNIT else ROWS // 2
        for row in draw(st.sets(st.integers(0, ROWS - 1), max_size=most)):
            column[row] = word
    names = draw(st.permutations(NAMES))
    delimiter = draw(st.sampled_from(",;\t|"))
    encoding = draw(st.sampled_from(["utf-8", "latin-1"]))
    if any("€" in text for row in columns for text in row):
        encoding = "utf-8"
    return [names, *zip(*columns, strict=True)], delimiter, encoding


def text_of(rows, delimiter):
    def cell(text):
        quoted = any(mark in text for mark in f'{delimiter}"\n')
        return '"' + text.replace('"', '""') + '"' if quoted else text

    return "".join(delimiter.join(map(cell, row)) + "\n" for row in rows)


@settings(max_examples=examples(15), phases=[Phase.explicit, Phase.generate])
@given(tables())
@example(([["um", "wert"], *[("07:30", "-441'150"), ("12:00", "2'000")] * 12], ",", "utf-8"))
def test_a_file_comes_back_as_it_was(tmp_path, table):
    rows, delimiter, encoding = table
    path = tmp_path / "table.csv"
    path.write_bytes(text_of(rows, delimiter).encode(encoding))
    (tmp_path / "draft.yaml").write_text(draft(path), encoding="utf-8")
    spec = load_spec(tmp_path / "draft.yaml")
    table = Domain.of(spec.attributes, spec.folder).encode(read_frame(spec))
    write_table(table, tmp_path / "table.parquet")
    write_csv(tmp_path / "table.parquet", tmp_path / "again.csv", spec)
    read = [position for position, name in enumerate(rows[0]) if name not in spec.ignore]
    expected = text_of([[row[position] for position in read] for row in rows], delimiter)
    assert (tmp_path / "again.csv").read_bytes().decode(spec.source.encoding) == expected
