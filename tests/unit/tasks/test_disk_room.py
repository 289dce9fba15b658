"""Room on disk is forecast from public inputs, above what is written, and checked beforehand."""

import numpy as np
import pytest
from random_tables import random_table

from cloister.errors import StorageError
from cloister.models.task import table_task
from cloister.schema.domain import Table
from cloister.tasks.data.tables import write_csv, write_table
from cloister.tasks.release import preflight
from cloister.tasks.release.preflight import require_usable
from cloister.tasks.requests import disk_room, plan_report
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

ROWS = 20_000
FOOTER = 32 << 10
"""Bytes of a Parquet file without rows, of some tens of columns."""


@pytest.mark.parametrize("seed", range(3))
def test_files_are_at_most_as_large_as_forecast(tmp_path, seed):
    spec = random_table(seed).declared()
    domain, rng = table_task(spec, ROWS).domain, np.random.default_rng(seed)
    codes = {
        c.name: np.arange(ROWS) % c.values if c.kind == "key" else rng.integers(0, c.size, ROWS)
        for c in domain
    }
    write_table(Table(domain, codes), tmp_path / "rows.parquet")
    size = (tmp_path / "rows.parquet").stat().st_size
    assert size <= disk_room.file_bytes(domain, ROWS) + FOOTER
    assert disk_room.draw_bytes(domain, ROWS) > disk_room.file_bytes(domain, ROWS)
    write_csv(tmp_path / "rows.parquet", tmp_path / "rows.csv", spec)
    assert (tmp_path / "rows.csv").stat().st_size <= disk_room.text_bytes(domain, ROWS) + FOOTER


def request_of(place, **more) -> ReleaseRequest:
    return resolve(ReleaseRequest(spec=place.spec, method="independent", delta="0", **more))


def test_the_home_holds_rows_out_of_core_and_each_copy(place, monkeypatch):
    request = request_of(place, out=place.folder / "out")
    context = public_context_of(request)
    before = disk_room.room_needed(request, context, place.home)
    monkeypatch.setattr(disk_room, "is_out_of_core", lambda *_: True)
    scratch = disk_room.room_needed(request, context, place.home)
    domain = context.task.lead.domain
    more = scratch[place.home.folder] - before[place.home.folder]
    assert more == plan_report.code_bytes(domain, context.task.lead.data_rows)
    assert set(before) >= {place.home.folder, place.folder / "out"}
    spare = disk_room._SPARE_BYTES
    assert before[place.folder / "out"] == disk_room.file_bytes(domain, request.rows) + spare
    csv = request_of(place, out=place.folder / "out", csv=True)
    texts = disk_room.room_needed(csv, context, place.home)[place.folder / "out"]
    assert texts - before[place.folder / "out"] == disk_room.text_bytes(domain, request.rows)


def test_what_lies_on_one_disk_needs_room_together(place, monkeypatch):
    request = request_of(place, out=place.folder / "out")
    context = public_context_of(request)
    free = [sum(disk_room.room_needed(request, context, place.home).values())]
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(free))
    require_usable(request, context, place.home)
    free[0] -= 1
    with pytest.raises(StorageError, match=r"make room.*nothing was charged now"):
        require_usable(request, context, place.home)
    left = place.home.folder / "releases" / "r-1"
    left.mkdir(parents=True)
    (left / "part").write_bytes(b"1")
    monkeypatch.setattr(preflight, "_pending", lambda *_: "r-1")
    require_usable(request, context, place.home)


class Usage:
    def __init__(self, free):
        self.free = free[0]
