"""``python -m cloister.demo OUT.csv`` writes the demo table."""

from __future__ import annotations

import argparse
from pathlib import Path

from cloister.demo.registry import DEMO_ROWS, DEMO_SEED, civic_registry


def write_demo_table() -> None:
    """Write the civic registry as CSV, as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m cloister.demo", description="Write the fictional civic registry."
    )
    parser.add_argument("out", type=Path, help="the CSV file to write")
    parser.add_argument(
        "--rows", type=int, default=DEMO_ROWS, help="number of residents (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=DEMO_SEED, help="seed of the generator (default: %(default)s)"
    )
    options = parser.parse_args()
    civic_registry(options.rows, options.seed).to_csv(options.out, index=False)


if __name__ == "__main__":
    write_demo_table()
