"""``python -m cloister.benchmarks.tables.hospital OUT.csv`` writes correlated attributes.

It has the shape of the Hospital table of the Gaussian copula's paper (Asghar et al., arXiv
1902.01499, section 4.2): 10,000 rows, nine attributes, 1,201 binary columns. A row is a measure of
a provider, whose number decides all else but the measure; one value in fifty is another one.
``data/specs/hospital.yaml`` is its spec.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

ROWS = 10_000
SEED = 20_190_204
SIZES = {
    "provider": 182,
    "name": 182,
    "address": 182,
    "city": 150,
    "state": 3,
    "zip": 160,
    "county": 105,
    "phone": 182,
    "measure": 55,
}
"""Values of each attribute; 1,201 in all."""

_OTHER = 0.02
"""Share of values that are drawn at random, whatever the provider."""


def hospital_table(rows: int = ROWS, seed: int = SEED) -> pd.DataFrame:
    """The table: providers of uneven sizes, and what belongs to each."""
    rng = np.random.default_rng(seed)
    shares = rng.gamma(4.0, size=SIZES["provider"])
    providers = rng.choice(SIZES["provider"], rows, p=shares / shares.sum())
    codes = {name: _places(SIZES["provider"], size, rng)[providers] for name, size in SIZES.items()}
    codes["provider"], codes["measure"] = providers, rng.integers(0, SIZES["measure"], rows)
    for name, size in SIZES.items():
        random_cells = rng.random(rows) < _OTHER
        codes[name] = np.where(random_cells, rng.integers(0, size, rows), codes[name])
    return pd.DataFrame({name: _words(name, code) for name, code in codes.items()})


def _places(providers: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """The value of each provider: every value belongs to one at least."""
    return rng.permutation(np.arange(providers) * size // providers)


def _words(name: str, codes: np.ndarray) -> list[str]:
    return [f"{name}_{code + 1:03d}" for code in codes]


def write_hospital() -> None:
    """Write the table as CSV, as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m cloister.benchmarks.tables.hospital",
        description="Write the generated hospital table.",
    )
    parser.add_argument("out", type=Path, help="the CSV file to write")
    hospital_table().to_csv(parser.parse_args().out, index=False)


if __name__ == "__main__":
    write_hospital()
