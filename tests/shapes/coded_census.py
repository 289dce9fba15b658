"""A census of any length in coded form, fourteen columns as those of data/specs/br2000.yaml.

Rows are of some classes, so that all columns depend on each other; they are written in pieces, so
that 10^8 of them take no more memory than one piece. ``python coded_census.py FOLDER ROWS``.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

BASE = Path(__file__).parents[2] / "data" / "specs" / "br2000.yaml"
CLASSES = 12
PIECE = 250_000
"""Rows of a piece, and of a row group."""


def values_of(attribute: dict) -> list:
    """The values of a declared attribute."""
    if attribute["type"] == "boolean":
        return [attribute["false"], attribute["true"]]
    if attribute["type"] == "integer":
        return list(range(attribute["min"], attribute["max"] + 1))
    return attribute["values"]


def shares_of(size: int, rng: np.random.Generator) -> np.ndarray:
    """The shares of the values of an attribute in each class: a hump somewhere, and some noise."""
    middle, width = rng.random((CLASSES, 1)) * size, 1 + rng.random((CLASSES, 1)) * size / 4
    humps = np.exp(-(((np.arange(size) - middle) / width) ** 2)) + 0.01 * rng.random(
        (CLASSES, size)
    )
    return humps / humps.sum(axis=1, keepdims=True)


def write(folder: Path, rows: int, seed: int = 1) -> Path:
    """The spec of a made census, beside its Parquet file."""
    content = yaml.safe_load(BASE.read_text(encoding="utf-8"))
    rng, attributes = np.random.default_rng(seed), content["attributes"]
    values = {name: values_of(declared) for name, declared in attributes.items()}
    ends = {name: shares_of(len(own), rng).cumsum(axis=1) for name, own in values.items()}
    writer = None
    for first in range(0, rows, PIECE):
        count, piece = min(PIECE, rows - first), {}
        classes = np.sort(rng.integers(0, CLASSES, count))
        order, sizes = rng.permutation(count), np.bincount(classes, minlength=CLASSES)
        for name, own in values.items():
            codes = np.concatenate(
                [
                    np.searchsorted(ends[name][kind, :-1], rng.random(size))
                    for kind, size in enumerate(sizes)
                ]
            )[order]
            piece[name] = pa.array(own).take(pa.array(codes))
        table = pa.table(piece)
        writer = writer or pq.ParquetWriter(folder / "census.parquet", table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    content["source"] = {"path": str(folder / "census.parquet")}
    content["privacy"]["rows"] = {"public": rows}
    delta = f"1e-{len(str(rows))}"  # less than one in as many as there are rows
    content["privacy"]["budget"]["delta"] = delta
    content["release"] = {"method": "mixture", "epsilon": 1, "delta": delta}
    path = folder / "census.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2])))
