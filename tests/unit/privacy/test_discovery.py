"""Measured domains: public partitions that hold everything, and what is made of noisy counts."""

import datetime as dt
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.errors import PlanError, UnplannedQuery
from cloister.hashing import keyed_numbers
from cloister.privacy.discovery import discover, plan_domains, require_enough
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateColumns
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.noise import DiscreteLaplace, Neighbours, SparseHistogram
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries import raw_columns
from cloister.schema.attributes import (
    LARGEST_WHOLE,
    Boolean,
    Categorical,
    Date,
    Datetime,
    Float,
    Integer,
    TextKey,
)
from cloister.schema.domain import column_of
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.spec_files.yaml_text import read_marked, spec_text

KEY = b"k" * 32
WHOLE = Integer(type="integer", min=0, max=0)
DECIMAL = Float(type="float", min=0, max=0)
DAY = Date(type="date", min=dt.date(2000, 1, 1), max=dt.date(2000, 1, 1))
MOMENT = Datetime(type="datetime", min=dt.datetime(2000, 1, 1), max=dt.datetime(2000, 1, 1))
LISTED = Categorical(type="categorical", values=["none"])


def discovered(tmp_path, frame: pd.DataFrame, attributes, epsilon=Fraction(20), seed=1):
    """What is found with little noise, seeded."""
    noise = NoiseSource.insecure(seed)
    plan = plan_domains(attributes, Neighbours(), epsilon, Fraction(1, 10**6))
    with Journal.open(tmp_path / "journal", {"test": "discovery"}) as journal:
        private = PrivateColumns(frame, KEY, Neighbours(), plan.event, journal, noise)
        return discover(private, plan, lambda *_: None)


def keys_of(tmp_path, values, attribute) -> dict:
    return discovered(tmp_path, pd.DataFrame({"x": values}), {"x": attribute}).attributes["x"]


@given(st.integers(-LARGEST_WHOLE, LARGEST_WHOLE))
def test_every_whole_number_lies_in_its_part(number):
    line = raw_columns.Line("x", WHOLE)
    (part,) = line.of(pd.Series([str(number)]))
    low, high = line.span(part, part)
    assert low <= number <= high
    assert high - low <= max(1, abs(number)) / 3


@given(st.floats(-(2.0**50), 2.0**50, allow_nan=False, exclude_max=True))
def test_every_float_lies_in_its_part(number):
    line = raw_columns.Line("x", DECIMAL)
    (part,) = line.of(pd.Series([repr(number)], dtype="str"))
    low, high = line.span(part, part)
    assert low <= number <= high
    assert high - low <= max(2.0**-39, abs(number) / 3)


@given(st.dates(dt.date(1, 1, 1)))
def test_every_day_lies_in_its_part(day):
    line = raw_columns.Line("x", DAY)
    (part,) = line.of(pd.Series([day.isoformat()]))
    low, high = (raw_columns.value_of(DAY, number) for number in line.span(part, part))
    assert low <= day.isoformat() <= high
    assert low[:4] == high[:4] or not 1900 <= day.year < 2100


@pytest.mark.parametrize("attribute", [WHOLE, DECIMAL, DAY, MOMENT])
def test_parts_follow_each_other_and_are_few_and_other_cells_have_parts_of_their_own(attribute):
    line = raw_columns.Line("x", attribute)
    assert (np.diff(line.edges) > 0).all()
    assert line.size <= raw_columns.LARGEST_PARTITION + 3
    for buckets in (line, raw_columns.Presence("x", attribute)):
        parts = buckets.of(pd.Series(["pear", None], dtype="str")).tolist()
        assert parts == [buckets.size - 1, buckets.missing]
    if attribute is DECIMAL:  # numbers beyond the line count at its ends
        assert line.of(pd.Series(["-1e300", "1e300"])).tolist() == [0, line.missing - 1]


def test_fineness_is_that_of_the_values():
    decimals = raw_columns.Fineness("x", DECIMAL).of(pd.Series(["3", "0.5", "-1.25", "0.1234567"]))
    assert [(*raw_columns.DECIMAL_GRIDS, None)[part] for part in decimals] == [
        (0, 1),
        (1, 5),
        (2, 25),
        None,
    ]
    moments = ["2020-01-01", "2020-01-01T05:00:00", "2020-01-01T05:07:00", "2020-01-01T05:07:09"]
    assert raw_columns.Fineness("x", MOMENT).of(pd.Series(moments)).tolist() == [0, 1, 6, 7]
    wholes = raw_columns.Fineness("x", WHOLE)
    parts = wholes.of(pd.Series(["-500000", "0", "1200", "35", "7"]))
    assert [wholes.steps[part] for part in parts] == [500_000, 500_000, 100, 5, 1]


@pytest.mark.parametrize(
    ("cells", "form", "expected"),
    [
        ([f"{100 * (n % 300) + 700}" for n in range(4000)], None, (700, 32_700, 100)),
        ([f"{-250 * (n % 300)}" for n in range(4000)], None, (-81_900, 0, 50)),
        ([f"{50 * (n % 3)}" for n in range(4000)], None, (0, 111, 1)),
        ([f"{n % 24}:{n % 4 * 15:02d}" for n in range(4000)], "%-H:%M", (0, 1530, 15)),
        ([f"{n % 24:02d}:{n % 60:02d}:00" for n in range(4000)], "%H:%M:%S", (0, 98_280, 60)),
    ],
)
def test_whole_numbers_get_the_step_of_which_all_are_multiples(tmp_path, cells, form, expected):
    attribute = WHOLE.model_copy(update={"format": form})
    keys = keys_of(tmp_path, [*cells, "40013" if form is None else "0:07:13"], attribute)
    assert (keys["min"], keys["max"], keys.get("step", 1)) == expected
    column = column_of("x", Integer(**keys), tmp_path)
    assert (column.encode(pd.Series(cells, dtype="str")) >= 0).all()


def typed(dtype, values):
    """Whole numbers, declared with a type of their own."""
    return pd.Series(values, dtype="Int64"), WHOLE.model_copy(update={"dtype": dtype})


YEARS = {"min": "1990-01-01", "max": "2009-12-31"}
WORDS = ["Aa", "no", "Ünïcode, 'quoted'"]


@pytest.mark.parametrize(
    ("cells", "attribute", "expected"),
    [
        # the bulk, without what is rare; a point mass at zero, and missing cells
        ([str(17 + n % 74) for n in range(4000)] + ["999999"], WHOLE, {"min": 16, "max": 95}),
        (
            ["0"] * 900 + ["5000"] * 900 + [None] * 300,
            WHOLE,
            {"min": 0, "max": 5119, "nullable": True, "special": [0]},
        ),
        (*typed("int8", [100] * 900 + [-100] * 900), {"min": -112, "max": 111, "dtype": "int8"}),
        (
            *typed("uint8", [255] * 900 + [0] * 900 + [7] * 900),
            {"min": 0, "max": 255, "dtype": "uint8", "special": [0]},
        ),
        (
            *typed("int16", [5] * 900 + [None] * 900),
            {"min": 5, "max": 5, "dtype": "Int16", "nullable": True},
        ),
        ([f"{1990 + n % 20}-05-06" for n in range(4000)], DAY, YEARS),
        (
            [f"{1990 + n % 20}-05-06T07:{n % 60:02d}:00" for n in range(4000)],
            MOMENT,
            {"min": "1990-01-01T00:00:00", "max": "2009-12-31T23:59:59", "step": 60},
        ),
        (WORDS * 600, LISTED, {"values": sorted(WORDS)}),
        (
            WORDS * 600 + [f"only {n}" for n in range(400)],
            LISTED,
            {"values": sorted(WORDS), "nullable": True},
        ),
        (
            ["10", "9", "pear"] * 600,
            LISTED.model_copy(update={"values": [1, 2]}),
            {"values": [9, 10], "nullable": True},
        ),
    ],
)
def test_what_many_rows_hold_is_found_and_the_rest_left_out(tmp_path, cells, attribute, expected):
    assert keys_of(tmp_path, cells, attribute) == {"type": attribute.type} | expected


def test_floats_get_bounds_on_the_grid_that_they_need(tmp_path):
    keys = keys_of(tmp_path, [f"{n % 700 / 4 - 20}" for n in range(8000)], DECIMAL)
    assert keys == {"type": "float", "min": -20.0, "max": 160.0, "decimals": 2, "step": 0.25}
    halves = keys_of(tmp_path / "halves", [f"{n % 70 / 2:.1f}" for n in range(8000)], DECIMAL)
    assert halves == {"type": "float", "min": 0.0, "max": 40.0, "decimals": 1, "step": 0.5}
    cents = keys_of(tmp_path / "cents", [f"{n % 5_000 / 100:.2f}" for n in range(8000)], DECIMAL)
    assert (cents["decimals"], "step" in cents) == (2, False)


@pytest.mark.parametrize(
    ("tenths", "step"),
    [
        ([10 + 5 * (n % 9) for n in range(6000)], 0.5),
        ([20 * (n % 21) for n in range(6000)], None),
        ([10 + n % 41 for n in range(6000)], None),
        ([5 * (n % 3) for n in range(6000)], None),
        ([12, *(10 + 5 * (n % 9) for n in range(6000))], 0.5),
    ],
)
def test_the_step_of_a_short_range_is_found_where_it_has_enough_multiples(tmp_path, tenths, step):
    """Five tenths and more are recognised; the last column has one row beside the grid."""
    keys = keys_of(tmp_path, [f"{number / 10:.1f}" for number in tenths], DECIMAL)
    assert keys.get("step") == step


@pytest.mark.parametrize("form", [None, "%g", "%.1f"])
def test_a_step_fits_the_declared_format(tmp_path, form):
    ratings = [f"{1 + n % 9 / 2:g}" for n in range(6000)]
    keys = keys_of(tmp_path, ratings, DECIMAL.model_copy(update={"format": form}))
    assert (Float(**keys).step, Float(**keys).format) == (0.5, form)


def test_large_floats_get_a_grid_that_can_be_counted(tmp_path):
    keys = keys_of(tmp_path, ["9e14", "0.000001"] * 2000, DECIMAL)
    assert column_of("x", Float(**keys), tmp_path).size < 2**63
    assert keys["decimals"] < 6


FINE = "%Y-%m-%dT%H:%M:%S."


@pytest.mark.parametrize(
    ("cells", "form", "expected"),
    [
        (
            [f"{1990 + n % 20}-05-06T07:00:00.{n % 999:03d}" for n in range(4000)],
            f"{FINE}%3f",
            ("1990-01-01T00:00:00", "2009-12-31T23:59:59", 0.001),
        ),
        (
            ["2000-05-06T07:00:00.123456"] * 2000,
            f"{FINE}%6f",
            ("2000-01-01T00:00:00", "2000-12-31T23:59:59", 1e-6),
        ),
        (
            ["9999-05-06T07:00:00.123456+02:00"] * 2000,
            f"{FINE}%6f+02:00",
            ("9900-01-01T00:00:00", "9999-12-30T23:59:59", 0.0001),
        ),
        (
            ["31.12.68 23:59:07-05:00"] * 2000,
            "%d.%m.%y %H:%M:%S-05:00",
            ("2068-12-30T23:59:59", "2068-12-30T23:59:59", 1),
        ),
    ],
)
def test_moments_get_the_fractions_of_their_format_and_bounds_that_it_writes(
    tmp_path, cells, form, expected
):
    keys = keys_of(tmp_path, cells, MOMENT.model_copy(update={"format": form}))
    assert (keys["min"], keys["max"], keys["step"]) == expected
    assert Datetime(**keys).format == form


def test_days_stay_inside_nanoseconds(tmp_path):
    keys = keys_of(
        tmp_path,
        ["1680-01-02", "2250-01-02"] * 900,
        DAY.model_copy(update={"dtype": "datetime64[ns]"}),
    )
    column = column_of("x", Date(**keys), tmp_path)
    assert column.decode(np.array([0, column.size - 1])).dt.year.tolist() == [1677, 2262]


def test_booleans_and_keys_need_to_know_only_which_share_of_values_is_missing(tmp_path):
    frame = pd.DataFrame(
        {
            "ok": ["y", "n", None, None] * 1000,
            "id": [f"SECRET{n}" for n in range(4000)],
            "remark": [None, None, None, "SECRET"] * 1000,
        }
    )
    key = TextKey(type="text", pattern="SECRET{0..9999}")
    attributes = {"ok": Boolean(type="boolean", true="y", false="n"), "id": key, "remark": key}
    keys = discovered(tmp_path, frame, attributes).attributes
    assert keys["ok"] == {"type": "boolean", "true": "y", "false": "n", "nullable": True}
    assert keys["id"] == {"type": "text", "pattern": "KEY{000000001..999999999}"}
    assert keys["remark"]["nullable"]
    assert keys["remark"]["missing_share"] == pytest.approx(0.75, abs=0.05)
    assert TextKey(**keys["remark"]).missing_share == keys["remark"]["missing_share"]


def test_what_too_few_rows_hold_is_not_found(tmp_path):
    frame = pd.DataFrame({"x": ["42"] * 20, "c": ["Rome"] * 20})
    findings = discovered(tmp_path, frame, {"x": WHOLE, "c": LISTED}, Fraction(1))
    assert findings.empty == ("x", "c")
    assert findings.attributes["x"] == {"type": "integer", "min": 0, "max": 0}
    assert findings.attributes["c"] == {"type": "categorical", "values": ["none"]}


def test_the_number_of_rows_is_near_and_noisy(tmp_path):
    frame = pd.DataFrame({"x": ["1"] * 5000})
    rows = {
        discovered(tmp_path / str(n), frame, {"x": WHOLE}, Fraction(1), seed=n).rows
        for n in range(8)
    }
    assert len(rows) > 1
    assert all(abs(count - 5000) < 200 for count in rows)


def test_a_plan_that_could_find_nothing_is_refused():
    plan = plan_domains({"x": WHOLE}, Neighbours(), Fraction(1, 100), Fraction(1, 10**6))
    require_enough(plan, 10**6)
    with pytest.raises(PlanError, match="rows to be found and the spec declares 100;"):
        require_enough(plan, 100)


def test_many_attributes_get_gaussian_noise():
    for attributes, laplace in (({"x": DAY}, True), ({str(n): WHOLE for n in range(300)}, False)):
        plan = plan_domains(attributes, Neighbours(), Fraction(1), Fraction(1, 10**6))
        assert isinstance(plan.noise, DiscreteLaplace) is laplace


def test_the_door_answers_only_what_was_planned(tmp_path):
    mechanism = DiscreteLaplace(Fraction(1))
    planned = repeat(mechanism.event(Neighbours().partition), 1)
    with Journal.open(tmp_path, {"test": "door"}) as journal:
        private = PrivateColumns(
            pd.DataFrame({"x": ["1"]}), KEY, Neighbours(), planned, journal, NoiseSource()
        )
        private.answer(raw_columns.BucketCounts(raw_columns.Line("x", WHOLE)), mechanism, "x")
        with pytest.raises(UnplannedQuery):
            private.answer(raw_columns.RowCount(), mechanism, "rows")


def test_the_door_names_texts_of_released_numbers_alone(tmp_path, monkeypatch):
    frame = pd.DataFrame({"x": ["Rome"] * 9 + ["Oslo"] * 9 + ["canary"]})
    mechanism = SparseHistogram(DiscreteLaplace(Fraction(20)), Fraction(1, 10**9))
    planned = mechanism.event(Neighbours().partition)
    with Journal.open(tmp_path, {"test": "door"}) as journal:
        private = PrivateColumns(frame, KEY, Neighbours(), planned, journal, NoiseSource())
        numbers, _ = private.answer(raw_columns.TextCounts("x", LISTED), mechanism, "x")
        words = private.words("x", LISTED, numbers)
        assert (sorted(words), private.words("x", LISTED, numbers[::-1])) == (
            ["Oslo", "Rome"],
            words[::-1],
        )
        for unreleased in (0, 1, int(numbers[0]) + 1):
            with pytest.raises(UnplannedQuery, match="column 'x' has no text") as refused:
                private.words("x", LISTED, np.array([*numbers, unreleased]))
            assert "canary" not in str(refused.value)
        monkeypatch.setattr(raw_columns.RawColumns, "words", lambda *_: ["Rome", "canary"])
        with pytest.raises(UnplannedQuery):
            private.words("x", LISTED, numbers)


def test_the_same_answers_are_read_back_and_the_journal_holds_no_text(tmp_path):
    frame = pd.DataFrame({"c": ["canary-quokka"] * 500 + ["canary-wombat"]})
    first = discovered(tmp_path, frame, {"c": LISTED}, Fraction(2))
    assert discovered(tmp_path, frame, {"c": LISTED}, Fraction(2), seed=2) == first
    assert first.attributes["c"]["values"] == ["canary-quokka"]
    assert b"canary" not in (tmp_path / "journal" / "journal.bin").read_bytes()


def test_numbers_of_texts_depend_on_the_key_alone_and_are_the_same_in_every_version():
    """A version that resumes another's release looks up texts by the numbers of the other."""
    expected = [6973049779295163351, 1713278080972393804, 8122487689143741873]
    assert keyed_numbers(pd.Index(["a", "bé", ""]), KEY).tolist() == expected
    assert keyed_numbers(pd.Index(["bé"]), KEY).tolist() == expected[1:2]
    assert keyed_numbers(pd.Index(["a"]), b"j" * 32)[0] != expected[0]


texts = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=8
)


@given(
    st.lists(texts, min_size=1, max_size=6, unique=True),
    st.floats(1e-12, 0.1),
    texts.filter(str.strip),
)
def test_a_spec_is_read_back_as_it_was_written(tmp_path_factory, words, delta, name):
    folder = tmp_path_factory.mktemp("written")
    content = {
        "name": "x",
        "source": {"path": "x.csv", "missing": []},
        "privacy": {
            "unit": "row",
            "relation": "add_remove",
            "rows": {"measured": True},
            "budget": {"epsilon": "1/3", "delta": delta, "per": "ever"},
        },
        "attributes": {
            name: {"type": "categorical", "values": words, "provenance": "dp: release r-0"}
        },
        "constraints": [{"key": [name], "soft": True}],
        "release": {"epsilon": 1, "delta": delta},
    }
    (folder / "x.yaml").write_text(spec_text(content), encoding="utf-8")
    assert read_marked(folder / "x.yaml").content == content
    assert load_spec(folder / "x.yaml").attributes[name].measured
