"""Ways of storing cells, and how columns of them are read."""

import datetime as dt
import gzip
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import cells
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from cells import BROKEN_BYTES, FLOATS, MOMENTS, TEXTS, WHOLES, Cells

from cloister.schema.sources.reading import read_frame
from cloister.schema.spec import SourceSpec, Spec

WHOLE_KINDS = [*"int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()]

Read = Callable[[Spec, list[Cells], Path], pd.DataFrame]


@dataclass(frozen=True)
class Source:
    """A way of storing cells: which cells it can store, and how columns of them are read."""

    name: str
    pool: Cells
    read: Read


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


def read_parquet(store: Callable[[Cells], pa.Array]) -> Read:
    def read(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
        table = pa.table(dict(zip(spec.attributes, map(store, columns), strict=True)))
        pq.write_table(table, folder / "rows.parquet", row_group_size=2, compression="none")
        return read_frame(spec, folder / "rows.parquet")

    return read


def read_int96(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
    moments = [pa.array(cells, pa.timestamp("us")) for cells in columns]
    table, path = pa.table(moments, list(spec.attributes)), folder / "rows.parquet"
    pq.write_table(table, path, row_group_size=3, use_deprecated_int96_timestamps=True)
    return read_frame(spec, path)


def read_sqlite(affinity: str) -> Read:
    def read(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
        (folder / "rows.db").unlink(missing_ok=True)
        with sqlite3.connect(folder / "rows.db") as server:
            names = ", ".join(f"{name} {affinity}" for name in spec.attributes)
            server.execute(f"CREATE TABLE rows ({names})")
            for row in zip(*columns, strict=True):
                holes = ["CAST(? AS TEXT)" if isinstance(cell, Broken) else "?" for cell in row]
                server.execute(f"INSERT INTO rows VALUES ({', '.join(holes)})", row)
        server.close()
        source = SourceSpec(url=f"sqlite:///{folder}/rows.db", table="rows")
        return read_frame(spec.model_copy(update={"source": source}))

    return read


class Broken(bytes):
    """Bytes that SQLite takes for text."""


def read_object(spec: Spec, columns: list[Cells], folder: Path) -> pd.DataFrame:
    return read_typed(lambda cells: pd.Series(cells, dtype=object))(spec, columns, folder)


def read_typed(make: Callable[[Cells], pd.Series]) -> Read:
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


def cast_to(kind: pa.DataType, numbers: pa.DataType = pa.int64()) -> Callable[[Cells], pa.Array]:
    return lambda cells: pa.array(cells, numbers).cast(kind)


def whole_pool(kind: pa.DataType) -> Cells:
    info = np.iinfo(kind.to_pandas_dtype())
    return [None, *(value for value in WHOLES if info.min <= value <= info.max)]


def moment_pool(unit: str) -> Cells:
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moments = [
        second * scale + part for second in (*MOMENTS, *cells.FAR_MOMENTS) for part in (0, 1)
    ]
    return [None, *(moment for moment in moments if abs(moment) < 2**63)]


def parquet_sources() -> Iterator[Source]:
    for kind in map(pa.type_for_alias, WHOLE_KINDS):
        yield Source(f"parquet {kind}", whole_pool(kind), read_parquet(stored_as(kind)))
    for scalar in (np.float16, np.float32, np.float64):
        kind = pa.from_numpy_dtype(scalar)
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
    four = [None, b"1   ", b"True", b"\xff\xff\xff\xff"]
    yield Source("parquet fixed_size_binary", four, read_parquet(stored_as(pa.binary(4))))
    days = [None, 0, 18_262, -719_162, -719_163, 2_932_896, 2_932_897, 10**8, -(10**8)]
    yield Source("parquet date32", days, read_parquet(cast_to(pa.date32(), pa.int32())))
    thousandths = [None, *(day * 86_400_000 for day in days[1:])]
    yield Source("parquet date64", thousandths, read_parquet(cast_to(pa.date64())))
    for unit, zone in product(("ms", "us", "ns"), (None, "UTC", "+14:00", "America/St_Johns")):
        read = read_parquet(cast_to(pa.timestamp(unit, zone)))
        yield Source(f"parquet timestamp {unit} {zone}", moment_pool(unit), read)
    yield Source("parquet int96", [None, *(second * 10**6 for second in MOMENTS)], read_int96)
    clock = [None, 0, 1, 36_000, 86_399]
    yield Source("parquet time32[s]", clock, read_parquet(cast_to(pa.time32("s"), pa.int32())))
    for unit in ("us", "ns"):
        yield Source(f"parquet time64[{unit}]", clock, read_parquet(cast_to(pa.time64(unit))))
    for kind in (pa.decimal128(38, 20), pa.decimal256(60, 30), pa.decimal128(38, 2)):
        pool = [None, *(d for d in cells.DECIMALS if -d.as_tuple().exponent <= kind.scale)]
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
        for affinity in ("", *"BOOLEAN INTEGER REAL NUMERIC TEXT BLOB DATE DATETIME TIME".split())
    ),
    Source("frame of objects", cells.OBJECTS, read_object),
    *(
        Source(f"frame of {dtype}", pool, read_typed(partial(pd.Series, dtype=dtype)))
        for dtype, pool in PANDAS.items()
    ),
    Source(
        "frame of mixed categories",
        # not 1 beside True: pandas takes equal values for one category, before anything is read
        [None, "1", "é", 7, 2.5, True, dt.date(2020, 1, 1), "2020-01-01"],
        read_typed(lambda cells: pd.Series(cells, dtype=object).astype("category")),
    ),
]
