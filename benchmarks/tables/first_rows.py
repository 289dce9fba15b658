"""``python -m cloister.benchmarks.tables.first_rows SPEC DATA ROWS FOLDER`` cuts a table.

FOLDER gets the first ROWS rows of DATA, a CSV file, under its name, and SPEC, which then declares
so many rows.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import yaml


def cut_table(spec: Path, data: Path, rows: int, folder: Path) -> None:
    """Write the first rows of a table and its spec."""
    folder.mkdir(parents=True, exist_ok=True)
    with data.open(encoding="utf-8") as lines:
        text = "".join(itertools.islice(lines, rows + 1))
    (folder / data.name).write_text(text, encoding="utf-8")
    content = yaml.safe_load(spec.read_text(encoding="utf-8"))
    content["source"] = {"path": str(folder / data.name)}
    content["privacy"]["rows"] = {"public": rows}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    (folder / spec.name).write_text(text, encoding="utf-8")


def main() -> None:
    """Cut a table as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m cloister.benchmarks.tables.first_rows",
        description="Cut a CSV table to its first rows.",
    )
    parser.add_argument("spec", type=Path, help="the spec of the table")
    parser.add_argument("data", type=Path, help="the table, a CSV file")
    parser.add_argument("rows", type=int, help="how many rows are kept")
    parser.add_argument("folder", type=Path, help="where table and spec are written")
    given = parser.parse_args()
    cut_table(given.spec, given.data, given.rows, given.folder)


if __name__ == "__main__":
    main()
