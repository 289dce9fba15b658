"""Rows against their declared domain: fail, drop, clip; counts and row numbers, never values."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cells import spec_of
from validated_rows import batch_of, validate_rows

from cloister.errors import DataError
from cloister.schema.domain import Domain
from cloister.schema.sources.csv_writing import write_csv_rows
from cloister.schema.validation import Validation

ATTRIBUTES = {
    "count": {"type": "integer", "min": 0, "max": 10, "special": [99], "nullable": True},
    "share": {"type": "float", "min": 0, "max": 1, "decimals": 2},
    "day": {"type": "date", "min": "2020-01-01", "max": "2020-12-31"},
    "at": {"type": "datetime", "min": "2020-01-01", "max": "2020-12-31", "step": 60},
    "kind": {"type": "categorical", "values": ["a", "b"], "nullable": True},
    "yes": {"type": "boolean", "true": "Y", "false": "N"},
}
VALID = {"count": "99", "share": "0.5", "day": "2020-01-01", "at": "2020-01-01 00:01"}
VALID |= {"kind": "a", "yes": "N"}


class _ManyOfKindA:
    """Rows of kind a with a count."""

    name = "count"

    def violation_mask(self, first, second):
        assert first is second
        kind, counts = first.comparable("kind"), first.comparable("count")
        return (kind == 0) & ~np.isnan(counts)


def _frame(*changes):
    return pd.DataFrame([VALID | change for change in changes]).astype("str")


BROKEN = _frame(
    *({}, {"count": "11"}, {"count": "secret"}, {"share": "-3"}, {"day": "2021-05-05"}),
    *({"at": "2020-02-02 00:00:30"}, {"kind": "secret"}, {"yes": "secret"}, {"share": None}),
    {"count": None, "kind": None},
)


TYPED = pd.DataFrame(
    {
        "count": pd.array([99, None], dtype="Int64"),
        "share": [0.5, 0.5],
        "day": pd.to_datetime(["2020-01-01"] * 2).astype("datetime64[s]"),
        "at": pd.to_datetime(["2020-01-01 00:01"] * 2).astype("datetime64[us]"),
        "kind": pd.Series(["a", None], dtype="str"),
        "yes": ["N", "N"],
    }
)


def test_rows_in_the_domain_pass_as_typed_values():
    frame = _frame({}, {"count": None, "kind": None})
    typed, report = validate_rows(frame, spec_of("fail", ATTRIBUTES))
    pd.testing.assert_frame_equal(typed, TYPED)
    assert report.valid
    assert (report.rows, report.dropped, report.clipped, report.emptied) == (2, 0, 0, 0)


def test_fail_names_columns_rules_and_rows_but_no_value():
    with pytest.raises(DataError) as caught:
        validate_rows(BROKEN, spec_of("fail", ATTRIBUTES))
    message = str(caught.value)
    assert "column 'count': 1 value cannot be read as the declared type (row 3)" in message
    assert "column 'count': 1 value outside the declared values or bounds (row 2)" in message
    assert "column 'share': 1 value missing in an attribute that is not nullable (row 9)" in message
    assert "column 'yes': 1 value cannot be read as the declared type (row 8)" in message
    assert "secret" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_drop_leaves_out_each_row_with_a_finding():
    typed, report = validate_rows(BROKEN, spec_of("drop", ATTRIBUTES))
    pd.testing.assert_frame_equal(typed, TYPED)
    assert (report.rows, report.dropped, len(report.findings)) == (10, 8, 8)


def test_clip_moves_numbers_empties_nullable_cells_and_drops_the_rest():
    typed, report = validate_rows(BROKEN, spec_of("clip", ATTRIBUTES))
    assert (report.dropped, report.clipped, report.emptied) == (2, 4, 2)
    assert typed["count"].tolist() == [99, 10, pd.NA, 99, 99, 99, 99, pd.NA]
    assert typed["share"].tolist() == [0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5, 0.5]
    assert typed["day"].iloc[4] == pd.Timestamp("2020-12-31")
    assert typed["at"].iloc[5] == pd.Timestamp("2020-02-02 00:00:00")
    assert typed["kind"].isna().tolist() == [False] * 6 + [True] * 2
    Domain.of(spec_of("fail", ATTRIBUTES).attributes, Path()).encode(typed)


def test_only_ten_row_numbers_are_named_and_no_row_left_is_an_error():
    _, report = validate_rows(_frame({}, *[{"kind": "x"}] * 500), spec_of("drop", ATTRIBUTES))
    (finding,) = report.findings
    assert (finding.count, finding.rows) == (500, tuple(range(2, 12)))
    assert report.to_dict()["findings"][0]["column"] == "kind"
    with pytest.raises(DataError, match="no row lies inside"):
        validate_rows(_frame({"yes": "x"}), spec_of("drop", ATTRIBUTES))


def test_missing_and_undeclared_columns_are_errors():
    with pytest.raises(DataError, match="'yes' are missing"):
        validate_rows(_frame({}).drop(columns="yes"), spec_of("fail", ATTRIBUTES))
    with pytest.raises(DataError, match="'extra' are not declared"):
        validate_rows(_frame({}).assign(extra=1), spec_of("fail", ATTRIBUTES))


@pytest.mark.parametrize("nullable", [False, True])
def test_booleans_with_the_words_one_and_zero_are_numbers(nullable):
    attributes = {"yes": {"type": "boolean", "true": "1", "false": "0", "nullable": nullable}}
    spec = spec_of("fail", attributes)
    domain, cells = Domain.of(spec.attributes, Path()), ["1", "0", *([None] * nullable)]
    for rows in (pd.Series(cells, dtype="str"), pd.Series(cells).astype("Int64")):
        frame = domain.encode(pd.DataFrame({"yes": rows})).frame()
        assert str(frame["yes"].dtype) == ("Int64" if nullable else "int64")
        assert frame["yes"].tolist() == [1, 0, *([pd.NA] * nullable)]
    written = io.StringIO()
    write_csv_rows(frame, written, spec, header=False)
    assert written.getvalue() == "1\n0\n" + '""\n' * nullable


def test_native_frames_are_validated_too():
    attributes = {name: ATTRIBUTES[name] for name in ("count", "day")}
    frame = pd.DataFrame({"count": [1, 11], "day": pd.to_datetime(["2020-01-01"] * 2)})
    typed, report = validate_rows(frame, spec_of("clip", attributes))
    assert typed["count"].tolist() == [1, 10]
    assert report.clipped == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("on_invalid", ["drop", "clip"])
def test_a_number_too_large_for_its_grid_is_outside_without_a_warning(on_invalid):
    """A warning would be a fact about one row."""
    spec = spec_of(on_invalid, {"share": ATTRIBUTES["share"]})
    rows, report = validate_rows(pd.DataFrame({"share": ["0.5", "1e308", "-1e308"]}), spec)
    assert rows["share"].tolist() == ([0.5, 1, 0] if on_invalid == "clip" else [0.5])
    assert report.findings


@pytest.mark.parametrize("on_invalid", ["drop", "clip"])
def test_rows_that_break_a_rule_are_dropped_and_numbered(on_invalid):
    frame = _frame({"kind": "b"}, {}, {"count": None}, {"share": "7", "kind": "b"}, {"count": "1"})
    validation = Validation.of(spec_of(on_invalid, ATTRIBUTES), rules=[_ManyOfKindA()])
    table = validation.table([batch_of(frame[:2]), batch_of(frame[2:])])
    report = validation.report()
    assert table.rows == (2 if on_invalid == "drop" else 3)
    rows = {(finding.column, finding.rule): finding.rows for finding in report.findings}
    assert rows == {("count", "constraint"): (2, 5), ("share", "domain"): (4,)}
    assert report.dropped == 5 - table.rows


def test_rows_that_break_a_rule_are_refused_by_their_numbers():
    validation = Validation.of(spec_of("fail", ATTRIBUTES), rules=[_ManyOfKindA()])
    validation.table([batch_of(_frame({"kind": "b"}, {}))])
    with pytest.raises(DataError, match=r"constraint 'count': 1 row breaking it.*\(row 2\)"):
        validation.report()
