"""Rows out of core: encrypted in a file without a name, and the same release as in memory."""

import json
import os
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow.parquet as pq
import pytest
from quick_release import quick_release
from small_disks import small_disk
from tiny_tables import domain_of, random_rows, table_of

from cloister import devices
from cloister.errors import StorageError
from cloister.flows.cli.app import run
from cloister.schema.block_table import BlockTable
from cloister.schema.domain import Domain, Table
from cloister.schema.scratch import scratch_table
from cloister.tasks.data import sources
from cloister.tasks.requests import plan, plan_report
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve


def late_imports():
    global SAMPLED_ROWS
    from cloister.evaluation.measures import SAMPLED_ROWS


def descriptor_of_newest() -> int:
    return max(
        int(name)
        for name in os.listdir("/proc/self/fd")
        if "(deleted)" in os.path.realpath(f"/proc/self/fd/{name}")
    )


def stored(rows: int = 1_000) -> tuple[Table, BlockTable, int]:
    """A table, the same out of core in two blocks, and the descriptor of its file."""
    table = table_of(random_rows(np.random.default_rng(1), rows)).narrow()
    scratch = scratch_table([table.take(slice(rows // 3)), table.take(slice(rows // 3, rows))])
    return table, scratch, descriptor_of_newest()


def test_columns_rows_and_totals_are_those_in_memory() -> None:
    table, scratch, _ = stored()
    assert scratch.rows == table.rows
    assert not scratch.in_memory
    chosen = np.array([999, 0, 5, 5, 333, 332])
    for name in table.domain.names:
        assert np.array_equal(scratch.stored[name], table.stored[name])
        assert scratch.stored[name].dtype == table.stored[name].dtype
        some = scratch.select([name]).take(chosen)
        assert np.array_equal(some.stored[name], table.stored[name][chosen])
    doubled = scratch.mapped(
        lambda part: Table(domain_of(6), {"c0": (2 * part.codes["c0"]).astype(np.uint8)})
    )
    assert np.array_equal(doubled.stored["c0"], 2 * table.codes["c0"])
    sums = doubled.total(lambda part: np.array([part.codes["c0"].sum(), part.rows]))
    assert sums.tolist() == [2 * table.codes["c0"].sum(), table.rows]


def test_the_file_has_no_name_is_its_owners_alone_and_shows_nothing_of_the_rows() -> None:
    scratch = scratch_table([Table(domain_of(3), {"c0": np.full(100_000, 2, dtype=np.uint8)})])
    status = os.fstat(descriptor_of_newest())
    assert (status.st_nlink, status.st_mode & 0o777) == (0, 0o600)
    written = np.frombuffer(os.pread(descriptor_of_newest(), 200_000, 0), dtype=np.uint8)
    assert len(written) == 100_016
    frequencies = np.bincount(written, minlength=256) / len(written)
    assert abs(frequencies - 1 / 256).max() < 8 * (1 / 256 / len(written)) ** 0.5  # one in 10^12
    assert (scratch.stored["c0"] == 2).all()


def test_a_changed_byte_ends_the_reading() -> None:
    _, scratch, descriptor = stored()
    os.pwrite(descriptor, bytes([os.pread(descriptor, 1, 40)[0] ^ 1]), 40)
    with pytest.raises(StorageError, match=r"altered or cut .* run the same command again"):
        scratch.total(lambda part: part.codes["c0"])


def test_a_full_disk_and_a_folder_that_cannot_be_written_say_what_to_do(tmp_path, monkeypatch):
    with small_disk(tmp_path / "disk", kilobytes=64) as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        table = Table(domain_of(3), {"c0": np.zeros(200_000, dtype=np.uint8)})
        with pytest.raises(StorageError, match=r"No space left .* make room in the home, or free"):
            scratch_table([table])
        assert not list(folder.iterdir())
        assert os.statvfs(folder).f_bavail == os.statvfs(folder).f_blocks
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(StorageError, match=r"cannot be stored in /proc \("):
        scratch_table([Table(Domain(()), {})])


def scarce(place, monkeypatch: pytest.MonkeyPatch) -> int:
    """Free memory of a machine, made so: a byte less than a release needs in memory."""
    request = resolve(ReleaseRequest(spec=place.spec, method="independent", delta="0"))
    context = public_context_of(request)
    needed = plan_report.forecast_of(request, context, plan.plan_of(request)).memory
    monkeypatch.setattr(devices, "free_memory", lambda device: needed - 1)
    return needed - 1


def synthetic(place) -> list[bytes]:
    """The bytes of all synthetic tables of a home, by release."""
    paths = sorted((place.home.folder / "releases").glob("*/*.parquet"))
    assert all(pq.read_metadata(path).num_rows for path in paths)
    return [path.read_bytes() for path in paths]


@pytest.mark.slow
def test_a_release_out_of_core_is_the_one_in_memory_and_so_is_its_evaluation(
    place, prefect_server, monkeypatch, capsys, seeded_noise
):
    words = ["--epsilon", "0.1", "--seed-sampling", "7", "--evaluate", "quick"]
    assert run(quick_release(place, *words)) == 0
    scarce(place, monkeypatch)
    gathered = []
    monkeypatch.setattr(
        sources, "scratch_table", lambda tables: gathered.append(1) or scratch_table(tables)
    )
    assert run(quick_release(place, *words)) == 0
    first, second = synthetic(place)
    assert first == second
    assert gathered == [1]
    assert not list((place.home.folder / "tmp").iterdir())
    written = (place.home.folder / "releases").glob("*/internal/evaluation.json")
    evaluations = [json.loads(path.read_text()) for path in written]
    sampled = {each["metrics"].pop("sampled_rows", None) for each in evaluations}
    assert sampled == {None, SAMPLED_ROWS}
    assert evaluations[0] == evaluations[1]
    assert run(["plan", *quick_release(place)[1:], "--epsilon", "0.1"]) == 0
    assert "with the rows out of core, as here" in " ".join(capsys.readouterr().out.split())


KILLED = """
import os, sys
from cloister import devices
from cloister.flows.cli.app import run
from cloister.schema.block_table import BlockTable
total, calls = BlockTable.total, []
def killed(table, kernel):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), 9)
    return total(table, kernel)
BlockTable.total = killed
devices.free_memory = lambda device: int(sys.argv[1])
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.slow
def test_a_killed_release_leaves_nothing_of_the_rows_and_resumes(place, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    words = [*quick_release(place), "--epsilon", "0.1"]
    command = [sys.executable, "-c", KILLED, str(scarce(place, monkeypatch)), *words]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    assert [path for path in (place.home.folder / "tmp").rglob("*") if path.is_file()] == []
    assert list((place.home.folder / "tmp").iterdir())
    (release,) = (place.home.folder / "releases").iterdir()
    assert run(words) == 0
    assert "resumes release" in " ".join(capsys.readouterr().err.split())
    assert [release] == list((place.home.folder / "releases").iterdir())
    assert list((place.home.folder / "tmp").iterdir()) == []


def test_what_cannot_be_read_out_of_core_is_refused_with_the_remedy(place, monkeypatch, capsys):
    monkeypatch.setattr(devices, "free_memory", lambda device: 1)
    words = ["release", str(place.spec), "--method", "deniability", "--rows", "4"]
    assert run(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "'deniability' divides the rows in memory; others read them out of core" in said
    assert "nothing was charged now" in said
    assert not (place.home.folder / "releases").exists()
