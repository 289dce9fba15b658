"""Customers of any number and ten times as many orders, four columns each, in coded form.

An order is like its customer, whose number of orders depends on who that is. Both tables are
written in pieces, so that 10^7 orders take no more memory than one. ``python customers.py FOLDER
CUSTOMERS``.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

MEAN, MOST = 10, 40
"""Orders of a customer on average, and at most."""

PIECE = 25_000
"""Customers of a piece; with their orders those of a row group."""

VALUES = list("abcdefgh")


def pieces(customers: int, seed: int = 1):
    """Rows of customers, and of their orders."""
    rng, numbered = np.random.default_rng(seed), 0
    for first in range(0, customers, PIECE):
        count = min(PIECE, customers - first)
        ages, kinds = rng.integers(0, 80, count), rng.integers(0, len(VALUES), (3, count))
        names = np.array([f"C{number:09}" for number in range(first + 1, first + count + 1)])
        degrees = np.minimum(rng.poisson(MEAN * (0.5 + ages / 80)), MOST)
        owners = rng.permutation(np.repeat(np.arange(count), degrees))
        orders = len(owners)
        like = [np.where(rng.random(orders) < 0.5, kind[owners], 0) for kind in kinds]
        costs = np.minimum(ages[owners] // 2 + rng.integers(0, 60, orders), 99)
        values = pa.array(VALUES)
        yield (
            pa.table(
                {"id": names, "age": ages}
                | {f"kind{at}": values.take(pa.array(kind)) for at, kind in enumerate(kinds)}
            ),
            pa.table(
                {
                    "number": [f"O{numbered + at:010}" for at in range(1, orders + 1)],
                    "customer": names[owners],
                    "cost": costs,
                }
                | {f"like{at}": values.take(pa.array(kind)) for at, kind in enumerate(like)}
            ),
        )
        numbered += orders


def write(folder: Path, customers: int) -> Path:
    """The spec of made customers and orders, beside their Parquet files."""
    names, writers, rows = ("customers", "orders"), {}, {"customers": 0, "orders": 0}
    for both in pieces(customers):
        for name, piece in zip(names, both, strict=True):
            if name not in writers:
                writers[name] = pq.ParquetWriter(folder / f"{name}.parquet", piece.schema)
            writers[name].write_table(piece)
            rows[name] += piece.num_rows
    for writer in writers.values():
        writer.close()
    key = {"type": "text", "pattern": "C{000000001..999999999}", "provenance": "numbering"}
    number = key | {"pattern": "O{0000000001..9999999999}"}
    kind = {"type": "categorical", "values": VALUES, "provenance": "form"}
    age, cost = (
        {"type": "integer", "min": 0, "max": most, "provenance": "form"} for most in (79, 99)
    )
    delta = f"1e-{len(str(customers))}"
    content = {
        "name": "customers",
        "privacy": {
            "unit": {"table": "customers"},
            "relation": "add_remove",
            "rows": {"public": customers},
            "budget": {"epsilon": 2, "delta": delta, "per": "ever"},
        },
        "tables": {
            "customers": {
                "source": {"path": str(folder / "customers.parquet")},
                "key": "id",
                "attributes": {"id": key, "age": age} | {f"kind{at}": kind for at in range(3)},
            },
            "orders": {
                "source": {"path": str(folder / "orders.parquet")},
                "rows": {"public": rows["orders"]},
                "references": {"customer": {"table": "customers", "max_rows": MOST}},
                "attributes": {"number": number, "customer": key, "cost": cost}
                | {f"like{at}": kind for at in range(3)},
            },
        },
        "release": {"method": "relational-mixture", "epsilon": 2, "delta": delta},
    }
    path = folder / "customers.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2])))
