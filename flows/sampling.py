"""More rows from the model of a release that was approved: post-processing, at no cost."""

from __future__ import annotations

from pathlib import Path

from cloister.constraints import violation_reports
from cloister.errors import InputError, StorageError
from cloister.privacy.ledger import Release, State
from cloister.schema.spec import Source
from flows.console import facts, show_json
from models.storage import load_saved
from tasks.books import release_of
from tasks.home import Home
from tasks.outputs import drawn, require_kept, write_csv, write_parquet

OPEN = (State.APPROVED, State.PUBLISHED)


def sample_release(home: Home, release: str, rows: int, out: Path, seed: int | None, as_json: bool) -> None:
    """Draw rows and write them to a new file.

    Raises:
        InputError: the release is not approved, or the file exists or has another ending than .parquet or .csv.
        SampleError: the rows cannot be drawn.
    """
    _require_open(release_of(home, release))
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"{out}: rows are written as .parquet or .csv; give --out one of these endings")
    if out.exists():
        raise StorageError(f"{out} exists; give another file with --out, or move it away")
    saved = load_saved(home.release(release) / "model")
    table = drawn(saved.model, rows, seed)
    require_kept(violation_reports(saved.task.hard, table))
    if out.suffix == ".csv":
        write_csv(table.frame(), out, Source(path=str(out)))
    else:
        write_parquet(table.frame(), out)
    content = {"release": release, "rows": rows, "file": str(out), "epsilon": 0}
    if as_json:
        show_json(content)
    else:
        facts("Drawn", content)


def _require_open(release: Release) -> None:
    if release.state not in OPEN:
        raise InputError(
            f"release {release.id} is {release.state}; rows are drawn from approved releases only: see cloister review"
        )
