"""Reading is row by row: a cell's value depends on the cell, its storage type and the spec alone.

The law, for every attribute type, source and ``on_invalid``: reading the rows a and b gives what
reading a and reading b gives, bit for bit. It is tested in its strongest form: reading any rows
gives what reading each cell alone gives. Each column of a drawn file is a table of its own, so that
10^5 tables cost minutes.
"""

from __future__ import annotations

import datetime as dt
import gzip
import os
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.schema.domain import Domain
from cloister.schema.parsing import parse
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec import Spec
from cloister.schema.validation import validate_rows

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
    "day": {"type": "date", "min": dt.date(1, 1, 1), "max": dt.date(9999, 12, 31)},
    "recent": {
        "type": "date",
        "min": dt.date(1990, 1, 1),
        "max": dt.date(2030, 1, 1),
        "dtype": "datetime64[ns]",
    },
    "at": {
        "type": "datetime",
        "min": dt.datetime(1, 1, 1),
        "max": dt.datetime(9999, 12, 31, 23, 59),
    },
    "minute": {
        "type": "datetime",
        "min": dt.datetime(2000, 1, 1),
        "max": dt.datetime(2030, 1, 1),
        "step": 60,
    },
    "key": {"type": "text", "pattern": "{1..99}"},
    "long-key": {"type": "text", "pattern": "R{000000000000000001..999999999999999999}"},
}
NULLABLE = {name: {**keys, "nullable": True} for name, keys in NULLABLE.items()}
TYPES = list(NULLABLE)

TEXTS = [
    *(
        "1",
        "01",
        "+1",
        "1.0",
        "1.",
        ".5",
        "0.5",
        "7",
        "7.5",
        "-0",
        "-0.0",
        "0",
        "1e0",
        "1E+5",
        "1e308",
        "1e-324",
        "1e999",
    ),
    *(
        "-1e999",
        "5e-324",
        "9" * 18,
        "9" * 19,
        "9" * 5000,
        "0" * 5000 + "7",
        "0." + "1" * 5000,
        "1e-999",
        "1_000",
        "1,5",
    ),
    *(
        "٣",
        "１",
        "²",
        "½",
        "1\u00a0",
        "\u20031",
        " 1",
        "1\t",
        "\v1",
        "1\n",
        "\r1",
        "1\n2",
        "0x1",
        "1L",
        "1d",
        "--1",
        "+-1",
    ),
    *(
        "nan",
        "NaN",
        "NAN",
        "inf",
        "-Infinity",
        "NULL",
        "None",
        "<NA>",
        "NaT",
        "N/A",
        "?",
        "NA",
        "",
        " ",
        "True",
        "true",
    ),
    *(
        "False",
        "Y",
        "N",
        "yes",
        "a",
        "A",
        " x",
        "x",
        "é",
        "e\u0301",
        "\u200b",
        "\ufeff1",
        "a\0b",
        "\0",
        "1\0",
        "\U0001f600",
    ),
    *(
        "2020-01-01",
        "2020-02-29",
        "2021-02-29",
        "0001-01-01",
        "0000-01-01",
        "9999-12-31",
        "10000-01-01",
        "-0001-01-01",
    ),
    *(
        "2020-1-1",
        "20200101",
        "01/02/2020",
        "2020-13-01",
        "2020-00-10",
        "2020-01-00",
        "2020-01-01 00:00:00.000000000",
    ),
    *(
        "2020-01-01 10:00:00.123456789",
        "1600-01-01T00:00:00.000000001",
        "9999-12-31T23:59:59.999999999Z",
        "2020-W01-1",
    ),
    *(
        "2020-01-01T24:00:00",
        "2016-12-31T23:59:60Z",
        "2020-01-01T10:00",
        "2020-01-01 10:00:30",
        "2020-01-01T10",
        "now",
    ),
    *(
        "2020-01-01T10:00+14:00",
        "2020-01-01T10:00-12:00",
        "2020-01-01T10:00+99:00",
        "2020-01-01T10:00+02",
        "today",
    ),
    *(
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59-12:00",
        "2020-01-01T10:00+02:60",
        "2020-01-01t10:00z",
        "1e5",
        "'",
    ),
    *(
        "x" * 70_000,
        '"',
        'a"b',
        "a,b",
        ";",
        "R7",
        "R000000000000000007",
        "R" + "9" * 25,
        "\\xff",
        "b'1'",
        "[1, 2]",
        "\\",
    ),
]
BROKEN_BYTES = [
    b"\xff",
    b"1\xff",
    b"\xed\xa0\x80",
    b"\xc3",
    b"2020-01-01\x80",
    b"\xf8\x88\x80\x80\x80",
]
WHOLES = [
    0,
    1,
    7,
    -1,
    -9,
    2,
    100,
    127,
    -128,
    255,
    2**31,
    2**53 + 1,
    10**17,
    10**18,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    7.0,
    7.5,
    0.5,
    0.1,
    -3.25,
    99.5,
    1e-300,
    5e-324,
    1e300,
    2.0**53,
    2.0**60,
    1e18,
    np.inf,
    -np.inf,
    np.nan,
]
MOMENTS = [
    0,
    1,
    -1,
    86_400,
    1_577_836_800,
    1_577_836_801,
    946_684_800,
    -62_135_596_800,
    -62_135_596_801,
    253_402_214_400,
]
FAR_MOMENTS = [253_402_300_800, 10**14, -(10**14), 2**62, -(2**62)]
DECIMALS = [
    Decimal(text)
    for text in ("1", "1.50", "0.5", "7", "-0", "0E-20", "99.5", "-3.25", "123456789012345678")
]
OBJECTS: list[Any] = [
    *TEXTS,
    *BROKEN_BYTES,
    *WHOLES,
    *FLOATS,
    *DECIMALS,
    *(
        "\ud800",
        "1\udfff",
        True,
        False,
        None,
        pd.NA,
        pd.NaT,
        np.bool_(True),
        np.int8(1),
        np.uint64(2**64 - 1),
    ),
    *(
        np.float32(0.1),
        np.float16(0.5),
        np.str_("a"),
        np.bytes_(b"1"),
        10**4299,
        10**5000,
        -(10**6000),
        1j,
        [1],
        {"a": 1},
    ),
    *(
        (1, 2),
        {1},
        np.array([1, 2]),
        bytearray(b"1"),
        memoryview(b"7"),
        uuid.UUID(int=7),
        dt.time(10, 0),
        dt.timedelta(1),
    ),
    *(
        Decimal("1E+999999"),
        Decimal("1E-999999"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("-Infinity"),
        Decimal("1E+5"),
    ),
    *(
        dt.date(2020, 1, 1),
        dt.date.min,
        dt.date.max,
        dt.datetime(2020, 1, 1, 10),
        dt.datetime.max,
        dt.datetime.min,
    ),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
    dt.datetime(
        2020, 1, 1, 10, tzinfo=dt.timezone(dt.timedelta(hours=-12, minutes=-7, seconds=-3))
    ),
    *(
        pd.Timestamp("2020-01-01 00:00:00.000000001"),
        pd.Timestamp("2020-06-01", tz="Europe/Berlin"),
        object(),
        range(3),
    ),
    *(
        np.datetime64("2020-01-01"),
        np.datetime64("NaT"),
        np.datetime64(10**17, "s"),
        np.timedelta64(1, "D"),
        pd.Timedelta(1),
    ),
]

# One-column tables of the slow test, over all sources and types.
TABLES = int(os.environ.get("CLOISTER_TEST_TABLES", "100000"))

Cells = list[Any]


def spec_of(on_invalid: str, attributes: dict[str, Any], **source: Any) -> Spec:
    return Spec.declared_in(
        Path(),
        {
            "name": "people",
            "source": source or {"path": "people.csv"},
            "privacy": {
                "unit": "row",
                "relation": "add_remove",
                "rows": {"measured": True},
                "budget": {"epsilon": 1, "delta": 0, "per": "ever"},
            },
            "attributes": attributes,
            "release": {"epsilon": 1, "delta": 0},
            "validation": {"on_invalid": on_invalid},
        },
    )


@dataclass(frozen=True)
class Source:
    """A way of storing cells: which cells it can store, and how columns of them are read."""

    name: str
    pool: Cells
    read: Callable[[Spec, list[Cells], Path], pd.DataFrame]


def csv_cell(cell: Any) -> bytes:
    raw = cell if isinstance(cell, bytes) else cell.encode()
    return b'"' + raw.replace(b'"', b'""') + b'"'


def read_csv(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
    lines = [b",".join(name.encode() for name in spec.attributes)]
    lines += [b",".join(map(csv_cell, row)) for row in zip(*columns, strict=True)]
    (folder / "rows.csv").write_bytes(b"\n".join(lines) + b"\n")
    return read_frame(spec, folder / "rows.csv")


def read_gzip(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
    read_csv(spec, columns, folder)
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes(), 1))
    return read_frame(spec, folder / "rows.csv.gz")


def read_parquet(
    store: Callable[[Cells], pa.Array],
) -> Callable[[Spec, list[Cells], Path], pd.DataFrame]:
    def read(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
        table = pa.table(dict(zip(spec.attributes, map(store, columns), strict=True)))
        pq.write_table(
            table,
            folder / "rows.parquet",
            row_group_size=2,
            compression="none",
            use_deprecated_int96_timestamps=False,
        )
        return read_frame(spec, folder / "rows.parquet")

    return read


def read_int96(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
    table = pa.table(
        {
            name: pa.array(cells, pa.timestamp("us"))
            for name, cells in zip(spec.attributes, columns, strict=True)
        }
    )
    pq.write_table(
        table, folder / "rows.parquet", row_group_size=3, use_deprecated_int96_timestamps=True
    )
    return read_frame(spec, folder / "rows.parquet")


def read_sqlite(affinity: str) -> Callable[[Spec, list[Cells], Path], pd.DataFrame]:
    def read(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
        (folder / "rows.db").unlink(missing_ok=True)
        with sqlite3.connect(folder / "rows.db") as server:
            server.execute(
                f"CREATE TABLE rows ({', '.join(f'{name} {affinity}' for name in spec.attributes)})"
            )
            for row in zip(*columns, strict=True):
                holes = ", ".join(
                    "CAST(? AS TEXT)" if isinstance(cell, Broken) else "?" for cell in row
                )
                server.execute(f"INSERT INTO rows VALUES ({holes})", row)
        server.close()
        there = spec.model_copy(
            update={
                "source": spec_of(
                    "clip", NULLABLE, url=f"sqlite:///{folder}/rows.db", table="rows"
                ).source
            }
        )
        return read_frame(there)

    return read


class Broken(bytes):
    """Bytes that SQLite takes for text."""


def read_object(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
    return pd.DataFrame(
        {
            name: pd.Series(cells, dtype=object)
            for name, cells in zip(spec.attributes, columns, strict=True)
        }
    )


def read_typed(
    make: Callable[[Cells], pd.Series],
) -> Callable[[Spec, list[Cells], Path], pd.DataFrame]:
    return lambda spec, columns, folder: pd.DataFrame(
        dict(zip(spec.attributes, map(make, columns), strict=True))
    )


def stored_as(kind: pa.DataType) -> Callable[[Cells], pa.Array]:
    return lambda cells: pa.array(cells, kind)


def as_broken_text(kind: pa.DataType, binary: pa.DataType) -> Callable[[Cells], pa.Array]:
    """Texts of which some are not UTF-8, as other programs write them."""
    return lambda cells: pa.array(
        [cell.encode() if isinstance(cell, str) else cell for cell in cells], binary
    ).view(kind)


def moments_as(kind: pa.DataType) -> Callable[[Cells], pa.Array]:
    return lambda cells: pa.array(cells, pa.int64()).cast(kind)


def whole_pool(kind: pa.DataType) -> Cells:
    info = np.iinfo(kind.to_pandas_dtype())
    return [None, *(value for value in WHOLES if info.min <= value <= info.max)]


def moment_pool(unit: str) -> Cells:
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moments = [second * scale + part for second in (*MOMENTS, *FAR_MOMENTS) for part in (0, 1)]
    return [None, *(moment for moment in moments if abs(moment) < 2**63)]


def parquet_sources() -> Iterator[Source]:
    wholes = (
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
    )
    for kind in wholes:
        yield Source(f"parquet {kind}", whole_pool(kind), read_parquet(stored_as(kind)))
    for kind, scalar in (
        (pa.float16(), np.float16),
        (pa.float32(), np.float32),
        (pa.float64(), np.float64),
    ):
        with np.errstate(over="ignore"):
            pool = [None, *(scalar(value) for value in FLOATS)]
        yield Source(f"parquet {kind}", pool, read_parquet(stored_as(kind)))
    yield Source("parquet bool", [None, True, False], read_parquet(stored_as(pa.bool_())))
    yield Source("parquet null", [None], read_parquet(stored_as(pa.null())))
    texts = [None, *TEXTS]
    for kind, binary in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())):
        yield Source(
            f"parquet {kind}", [*texts, *BROKEN_BYTES], read_parquet(as_broken_text(kind, binary))
        )
    yield Source("parquet string_view", texts, read_parquet(stored_as(pa.string_view())))
    raw = [None, *BROKEN_BYTES, *(text.encode() for text in TEXTS)]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield Source(f"parquet {kind}", raw, read_parquet(stored_as(kind)))
    yield Source(
        "parquet fixed_size_binary",
        [None, b"1   ", b"True", b"\xff\xff\xff\xff"],
        read_parquet(stored_as(pa.binary(4))),
    )
    days = [None, 0, 18_262, -719_162, -719_163, 2_932_896, 2_932_897, 10**8, -(10**8)]
    yield Source(
        "parquet date32",
        days,
        read_parquet(lambda cells: pa.array(cells, pa.int32()).cast(pa.date32())),
    )
    yield Source(
        "parquet date64",
        [None, *(day * 86_400_000 for day in days[1:])],
        read_parquet(lambda cells: pa.array(cells, pa.int64()).cast(pa.date64())),
    )
    for unit in ("ms", "us", "ns"):
        for zone in (None, "UTC", "+14:00", "America/St_Johns"):
            yield Source(
                f"parquet timestamp {unit} {zone}",
                moment_pool(unit),
                read_parquet(moments_as(pa.timestamp(unit, zone))),
            )
    yield Source("parquet int96", [None, *(second * 10**6 for second in MOMENTS)], read_int96)
    for kind, size in (
        (pa.time32("s"), pa.int32()),
        (pa.time64("us"), pa.int64()),
        (pa.time64("ns"), pa.int64()),
    ):
        yield Source(
            f"parquet {kind}",
            [None, 0, 1, 36_000, 86_399],
            read_parquet(lambda cells, kind=kind, size=size: pa.array(cells, size).cast(kind)),
        )
    for kind in (pa.decimal128(38, 20), pa.decimal256(60, 30), pa.decimal128(38, 2)):
        pool = [None, *(d for d in DECIMALS if -d.as_tuple().exponent <= kind.scale)]
        yield Source(f"parquet {kind}", pool, read_parquet(stored_as(kind)))
    dictionaries = {
        "string": (texts, pa.string()),
        "int64": (whole_pool(pa.int64()), pa.int64()),
        "float64": ([None, *FLOATS], pa.float64()),
    }
    for name, (pool, kind) in dictionaries.items():
        store = lambda cells, kind=kind: pa.array(cells, kind).dictionary_encode()
        yield Source(f"parquet dictionary of {name}", pool, read_parquet(store))


SQL_CELLS: Cells = [
    None,
    *TEXTS,
    *(Broken(raw) for raw in BROKEN_BYTES),
    *BROKEN_BYTES,
    *(whole for whole in WHOLES if abs(whole) < 2**63),
    *FLOATS,
]
PANDAS = {
    "Int64": whole_pool(pa.int64()),
    "UInt64": whole_pool(pa.uint64()),
    "Float64": [None, *FLOATS[:-1]],
    "Float32": [None, *FLOATS[:9]],
    "boolean": [None, True, False],
    "float64": FLOATS,
    "int64": [whole for whole in WHOLES if abs(whole) < 2**63],
    "uint64": [whole for whole in WHOLES if whole >= 0],
    "bool": [True, False],
    "string": [None, *TEXTS],
    "category": [None, *TEXTS],
    "int64[pyarrow]": whole_pool(pa.int64()),
    "string[pyarrow]": [None, *TEXTS],
    "float64[pyarrow]": [None, *FLOATS],
}
SOURCES = [
    Source("csv", [*TEXTS, *BROKEN_BYTES], read_csv),
    Source("csv gzip", [*TEXTS, *BROKEN_BYTES], read_gzip),
    *parquet_sources(),
    *(
        Source(f"sqlite {affinity or 'without a type'}", SQL_CELLS, read_sqlite(affinity))
        for affinity in (
            "",
            "BOOLEAN",
            "INTEGER",
            "REAL",
            "NUMERIC",
            "TEXT",
            "BLOB",
            "DATE",
            "DATETIME",
            "TIME",
        )
    ),
    Source("frame of objects", OBJECTS, read_object),
    *(
        Source(
            f"frame of {dtype}",
            pool,
            read_typed(lambda cells, dtype=dtype: pd.Series(cells, dtype=dtype)),
        )
        for dtype, pool in PANDAS.items()
    ),
    Source(
        "frame of mixed categories",
        # not 1 beside True: pandas takes equal values for one category, before anything is read
        [None, "1", "é", 7, 2.5, True, dt.date(2020, 1, 1), "2020-01-01"],
        read_typed(lambda cells: pd.Series(cells, dtype=object).astype("category")),
    ),
]


@dataclass(frozen=True)
class Alone:
    """What a cell becomes in a table of its own, and whether it lies in its domain."""

    cell: tuple[str, str, int]
    valid: bool


class SourceReading:
    """The reading of one source, and of each of its cells alone, remembered."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.alone: dict[tuple[str, int], Alone] = {}

    def of(
        self, on_invalid: str, names: list[str], columns: list[Cells]
    ) -> tuple[pd.DataFrame, Any, set[str]]:
        """The typed frame, the codes and the columns with findings of a table of attributes."""
        attributes = {f"c{at}": NULLABLE[name] for at, name in enumerate(names)}
        spec = spec_of(
            on_invalid,
            {**attributes, "mark": {"type": "text", "pattern": "M{1..9}", "nullable": True}},
        )
        marks = [self.source.pool[0]] * len(columns[0])
        frame, report = validate_rows(self.source.read(spec, [*columns, marks], self.folder), spec)
        table = Domain.of(spec.attributes, Path()).encode(frame)
        return frame, table.codes, {finding.column for finding in report.findings}

    def remember_all(self, names: list[str], places: set[int]) -> None:
        """Read cells of the pool as each attribute, each in a table of one row."""
        for at in sorted(places):
            wanted = [name for name in dict.fromkeys(names) if (name, at) not in self.alone]
            if wanted:
                frame, codes, found = self.of(
                    "clip", wanted, [[self.source.pool[at]] for _ in wanted]
                )
                for column, name in enumerate(f"c{column}" for column in range(len(wanted))):
                    self.alone[wanted[column], at] = Alone(
                        self._cell(frame, codes, name, 0), name not in found
                    )

    def law(self, on_invalid: str, names: list[str], places: list[list[int]]) -> int:
        """Check that rows read together are what their cells are alone.

        The number of one-column tables.
        """
        self.remember_all(names, {at for column in places for at in column})
        kept = self._kept(on_invalid, names, places)
        if not kept:
            return 0
        frame, codes, _ = self.of(
            on_invalid, names, [[self.source.pool[at] for at in column] for column in places]
        )
        assert len(frame) == len(kept)
        for column, name in enumerate(names):
            expected = [self.alone[name, places[column][row]].cell for row in kept]
            found = [self._cell(frame, codes, f"c{column}", row) for row in range(len(kept))]
            assert found == expected, (
                self.source.name,
                name,
                [self.source.pool[places[column][row]] for row in kept],
            )
        return len(names)

    def _kept(self, on_invalid: str, names: list[str], places: list[list[int]]) -> list[int]:
        """The rows to be kept: all under ``clip``, else those in which each cell alone is kept."""
        rows = range(len(places[0]))
        if on_invalid == "clip":
            return list(rows)
        named = list(zip(names, places, strict=True))
        return [
            row
            for row in rows
            if all(self.alone[name, column[row]].valid for name, column in named)
        ]

    @staticmethod
    def _cell(frame: pd.DataFrame, codes: Any, column: str, row: int) -> tuple[str, str, int]:
        return repr(frame[column].iloc[row]), str(frame[column].dtype), int(codes[column][row])


def tables(reading: SourceReading, count: int, seed: int, longest: int = 6) -> int:
    """Check the law on at least ``count`` one-column tables, under each ``on_invalid``."""
    rng, checked = random.Random(seed), 0
    pool = range(len(reading.source.pool))
    while checked < count:
        some = [rng.choice(pool) for _ in range(8)]
        rows = rng.randint(2, longest)
        places = [[rng.choice(some) for _ in range(rows)] for _ in TYPES]
        checked += reading.law("clip", TYPES, places)
        for on_invalid in ("drop", "fail"):
            tidy = [
                _tidied(reading, name, column, on_invalid, rng)
                for name, column in zip(TYPES, places, strict=True)
            ]
            usable = [at for at, column in enumerate(tidy) if column]
            checked += (
                reading.law(on_invalid, [TYPES[at] for at in usable], [tidy[at] for at in usable])
                if usable
                else 0
            )
    return checked


def _tidied(
    reading: SourceReading, name: str, column: list[int], on_invalid: str, rng: random.Random
) -> list[int]:
    """The cells, those that are invalid alone exchanged for valid ones.

    Under ``drop`` a few are left.
    """
    valid = [at for at in column if reading.alone[name, at].valid]
    ugly = 0.1 if on_invalid == "drop" else 0.0
    return (
        [at if at in valid or rng.random() < ugly else rng.choice(valid) for at in column]
        if valid
        else []
    )


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_rows_read_together_are_what_their_cells_are_alone(source: Source, tmp_path: Path) -> None:
    reading = SourceReading(source, tmp_path)
    rng = random.Random(source.name)
    some, places = rng.sample(TYPES, 6), [rng.randrange(len(source.pool)) for _ in range(2)]
    assert reading.law("clip", some, [places] * len(some)) == len(some)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_rows_read_together_are_what_their_cells_are_alone_at_length(
    source: Source, tmp_path: Path
) -> None:
    assert tables(
        SourceReading(source, tmp_path), TABLES // len(SOURCES) + 1, seed=1
    ) >= TABLES // len(SOURCES)


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=15, deadline=None)
@given(cells=st.lists(st.text() | st.sampled_from(TEXTS), min_size=1, max_size=6))
def test_any_texts_are_parsed_each_on_its_own_and_stay_what_they_become(
    name: str, cells: list[str]
) -> None:
    attribute = spec_of("clip", {"c": NULLABLE[name]}).attributes["c"]
    typed, invalid = parse(pd.Series(cells, dtype=object), attribute)
    alone = [parse(pd.Series([cell], dtype=object), attribute) for cell in cells]
    pd.testing.assert_series_equal(typed, pd.concat([one for one, _ in alone], ignore_index=True))
    assert invalid.tolist() == [bool(mask[0]) for _, mask in alone]
    again, none = parse(typed, attribute)
    pd.testing.assert_series_equal(again, typed)
    assert not none.any()
