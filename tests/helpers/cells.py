"""Cells of every kind that sources may hold, and attributes of every type that read them."""

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from declared_table import content

from cloister.schema.spec import Spec

NULLABLE: dict[str, dict[str, Any]] = {
    "category": {
        "type": "categorical",
        "values": ["a", "1", "7", "True", "0.5", "é", "2020-01-01", " x", "1.50"],
    },
    "pattern": {"type": "categorical", "values": {"pattern": "{1..30}"}},
    "whole-list": {"type": "categorical", "values": [0, 1, 2, 7, -1]},
    "float-list": {"type": "ordinal", "values": [0.0, 0.5, 1.0, 7.0]},
    "order": {"type": "ordinal", "values": ["0", "1", "7", "a"]},
    "flag": {"type": "boolean"},
    "words": {"type": "boolean", "true": "Y", "false": "1"},
    "count": {"type": "integer", "min": -5, "max": 10**17, "special": [-9]},
    "step": {"type": "integer", "min": 0, "max": 100, "step": 7},
    "share": {"type": "float", "min": -10, "max": 10, "decimals": 3, "special": [99.5]},
    "fine": {"type": "float", "min": 0, "max": 1},
    "day": {"type": "date", "min": "0001-01-01", "max": "9999-12-31"},
    "recent": {"type": "date", "min": "1990-01-01", "max": "2030-01-01", "dtype": "datetime64[ns]"},
    "at": {"type": "datetime", "min": "0001-01-01T00:00:00", "max": "9999-12-31T23:59:00"},
    "minute": {"type": "datetime", "min": "2000-01-01", "max": "2030-01-01", "step": 60},
    "key": {"type": "text", "pattern": "{1..99}"},
    "long-key": {"type": "text", "pattern": "R{000000000000000001..999999999999999999}"},
}
NULLABLE = {name: {**keys, "nullable": True} for name, keys in NULLABLE.items()}
TYPES = list(NULLABLE)

TEXTS = [
    "1", "01", "+1", "1.0", "1.", ".5", "0.5", "7", "7.5", "-0", "-0.0", "0", "1e0", "1E+5",
    "1e308", "1e-324", "1e999", "-1e999", "5e-324", "9" * 18, "9" * 19, "9" * 5000,
    "0" * 5000 + "7", "0." + "1" * 5000, "1e-999", "1_000", "1,5", "٣", "１", "²", "½", "1\u00a0",
    "\u20031", " 1", "1\t", "\v1", "1\n", "\r1", "1\n2", "0x1", "1L", "1d", "--1", "+-1", "nan",
    "NaN", "NAN", "inf", "-Infinity", "NULL", "None", "<NA>", "NaT", "N/A", "?", "NA", "", " ",
    "True", "true", "False", "Y", "N", "yes", "a", "A", " x", "x", "é", "e\u0301", "\u200b",
    "\ufeff1", "a\0b", "\0", "1\0", "\U0001f600", "2020-01-01", "2020-02-29", "2021-02-29",
    "0001-01-01", "0000-01-01", "9999-12-31", "10000-01-01", "-0001-01-01", "2020-1-1", "20200101",
    "01/02/2020", "2020-13-01", "2020-00-10", "2020-01-00", "2020-01-01 00:00:00.000000000",
    "2020-01-01 10:00:00.123456789", "1600-01-01T00:00:00.000000001",
    "9999-12-31T23:59:59.999999999Z", "2020-W01-1", "2020-01-01T24:00:00", "2016-12-31T23:59:60Z",
    "2020-01-01T10:00", "2020-01-01 10:00:30", "2020-01-01T10", "now", "2020-01-01T10:00+14:00",
    "2020-01-01T10:00-12:00", "2020-01-01T10:00+99:00", "2020-01-01T10:00+02", "today",
    "0001-01-01T00:00+14:00", "9999-12-31T23:59-12:00", "2020-01-01T10:00+02:60",
    "2020-01-01t10:00z", "1e5", "'", "x" * 70_000, '"', 'a"b', "a,b", ";", "R7",
    "R000000000000000007", "R" + "9" * 25, "\\xff", "b'1'", "[1, 2]", "\\",
]  # fmt: skip
BROKEN_BYTES = [
    b"\xff", b"1\xff", b"\xed\xa0\x80", b"\xc3", b"2020-01-01\x80", b"\xf8\x88\x80\x80\x80",
]  # fmt: skip
WHOLES = [
    0, 1, 7, -1, -9, 2, 100, 127, -128, 255, 2**31, 2**53 + 1, 10**17, 10**18, 2**63 - 1, -(2**63),
    2**64 - 1,
]  # fmt: skip
FLOATS = [
    0.0, -0.0, 1.0, 7.0, 7.5, 0.5, 0.1, -3.25, 99.5, 1e-300, 5e-324, 1e300, 2.0**53, 2.0**60, 1e18,
    np.inf, -np.inf, np.nan,
]  # fmt: skip
MOMENTS = [
    0, 1, -1, 86_400, 1_577_836_800, 1_577_836_801, 946_684_800, -62_135_596_800, -62_135_596_801,
    253_402_214_400,
]  # fmt: skip
FAR_MOMENTS = [253_402_300_800, 10**14, -(10**14), 2**62, -(2**62)]
DECIMALS = [
    Decimal(text)
    for text in ("1", "1.50", "0.5", "7", "-0", "0E-20", "99.5", "-3.25", "123456789012345678")
]
OBJECTS: list[Any] = [
    *TEXTS, *BROKEN_BYTES, *WHOLES, *FLOATS, *DECIMALS, "\ud800", "1\udfff", True, False, None,
    pd.NA, pd.NaT, np.bool_(True), np.int8(1), np.uint64(2**64 - 1), np.float32(0.1),
    np.float16(0.5), np.str_("a"), np.bytes_(b"1"), 10**4299, 10**5000, -(10**6000), 1j, [1],
    {"a": 1}, (1, 2), {1}, np.array([1, 2]), bytearray(b"1"), memoryview(b"7"), uuid.UUID(int=7),
    dt.time(10, 0), dt.timedelta(1), Decimal("1E+999999"), Decimal("1E-999999"), Decimal("NaN"),
    Decimal("sNaN"), Decimal("-Infinity"), Decimal("1E+5"), dt.date(2020, 1, 1), dt.date.min,
    dt.date.max, dt.datetime(2020, 1, 1, 10), dt.datetime.max, dt.datetime.min,
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
    dt.datetime(2020, 1, 1, 10, tzinfo=dt.timezone(-dt.timedelta(hours=12, minutes=7, seconds=3))),
    pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp("2020-06-01", tz="Europe/Berlin"),
    object(), range(3), np.datetime64("2020-01-01"), np.datetime64("NaT"),
    np.datetime64(10**17, "s"), np.timedelta64(1, "D"), pd.Timedelta(1),
]  # fmt: skip

Cells = list[Any]


def spec_of(on_invalid: str, attributes: dict[str, Any], **source: Any) -> Spec:
    own = content(attributes, name="people", validation={"on_invalid": on_invalid})
    return Spec.declared_in(Path(), own | {"source": source or {"path": "people.csv"}})
