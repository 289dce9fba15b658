"""Rows with workers: real processes of Dask that are killed, and the same release as in memory."""

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pandas as pd
import psutil
import pytest
import sqlalchemy as sa
from postgres_schemas import schema

from cloister.flows.cli.app import run
from cloister.models.sampling import drawing
from cloister.privacy.ledger import Release, State
from cloister.schema.block_table import BlockTable
from cloister.tasks.data import row_readers
from cloister.tasks.data import workers as module
from cloister.tasks.data.workers import workers_of
from cloister.tasks.ledger.access import open_ledger


def late_imports():
    global clipped_gradients, dask_cluster
    from dask_cluster import dask_cluster

    from cloister.privacy.queries import clipped_gradients


QUICK = ["--method", "independent", "--delta", "0", "--epsilon", "0.1", "--evaluate", "none"]
KAMINO = ["--epsilon", "1", "--evaluate", "none", "--seed-sampling", "7"]
MIXTURE = ["--method", "mixture", "--epsilon", "0.5", "--evaluate", "none", "--seed-sampling", "7"]


@pytest.fixture
def parted(place, monkeypatch):
    """The command of a release of the clubs, whose rows are in seven parts."""
    monkeypatch.setattr(row_readers, "_PART_ROWS", 300)
    return ["release", str(place.spec)]


def charges(place) -> list[Release]:
    """The releases that the ledger knows."""
    return open_ledger(place.home).releases()


def synthetic(place) -> list[bytes]:
    return [path.read_bytes() for path in sorted(place.home.folder.glob("releases/*/*.parquet"))]


def refused_alike(place) -> list[str]:
    """The problems of the rows, which two releases found."""
    first, second = (
        json.loads(path.read_text())["problems"]
        for path in sorted(place.home.folder.glob("releases/*/internal/validation.json"))
    )
    assert first == second
    return first


def assert_released_alike(place) -> None:
    """Two releases of the same rows, each charged once."""
    first, second = synthetic(place)
    assert first == second
    assert [release.state for release in charges(place)] == [State.CANDIDATE] * 2


@pytest.mark.slow
def test_a_release_with_workers_is_the_one_in_memory_byte_for_byte(
    place, parted, seeded_noise, monkeypatch, caplog
):
    monkeypatch.setattr(drawing, "CHUNK_ROWS", 300)
    words = [*parted, *MIXTURE, "--evaluate", "quick"]
    assert run(words) == 0
    assert run([*words, "--workers", "local:2"]) == 0
    first, second = synthetic(place)
    assert first == second
    first, second = (
        json.loads(path.read_text())
        for path in place.home.folder.glob("releases/*/internal/evaluation.json")
    )
    assert first | {"metrics": {}} == second | {"metrics": {}}  # which hold the time it took
    assert not list((place.home.folder / "tmp").iterdir())
    assert not [record for record in caplog.records if record.name.startswith("distributed")]


@pytest.mark.slow
def test_more_rows_are_the_same_drawn_by_workers(place, parted, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "CHUNK_ROWS", 300)
    assert run([*parted, *QUICK]) == 0
    (release,) = charges(place)
    assert run(["review", "approve", release.id, "--by", "ruth", "--reason", "checked"]) == 0
    draw = ["sample", release.id, "--rows", "2000", "--seed", "3", "--out"]
    alone, by_workers = tmp_path / "alone.parquet", tmp_path / "workers.parquet"
    assert run([*draw, str(alone)]) == 0
    assert run([*draw, str(by_workers), "--workers", "local:2"]) == 0
    assert alone.read_bytes() == by_workers.read_bytes()
    url = f"sqlite:///{tmp_path}/rows.db"
    assert run([*draw, url, "--workers", "local:2"]) == 2
    assert "one table to a file" in capsys.readouterr().err


PERSONS = """
name: visits
source: {path: DATA}
privacy: {unit: {key: person, max_rows: 3}, relation: add_remove, rows: {public: 2000},
  budget: {epsilon: 4, delta: 1e-5, per: year}}
attributes:
  person: {type: text, pattern: "P{0001..9999}", provenance: numbering}
  city: {type: categorical, values: [a, b, c], per: person, provenance: map}
  cost: {type: integer, min: 0, max: 9, provenance: form}
release: {method: independent, epsilon: 1, delta: 1e-6}
"""


@pytest.fixture
def visits(place, parted):
    """The command of a release of persons of up to three rows, one of whom has a thousand."""
    rng, numbers = np.random.default_rng(5), range(400)
    people = rng.permutation([0] * 1000 + [*numbers, *numbers, *rng.integers(0, 400, 200)])
    frame = pd.DataFrame({"person": [f"P{number:04}" for number in people]})
    frame["city"] = np.array(["a", "b", "c"])[people % 3]
    frame["cost"] = rng.integers(0, 10, len(people))  # the longest has a hundred rows of each cost
    frame.loc[7, "person"] = "nobody that was declared"
    frame.to_csv(place.data, index=False)
    place.spec.write_text(PERSONS.replace("DATA", str(place.data)), encoding="utf-8")
    return [*parted, "--seed-sampling", "7"]


def lose_at(number: int, monkeypatch, lose, sums: str = "total") -> None:
    """Have ``lose`` called when rows are summed for the so manieth time."""
    summed, calls = getattr(BlockTable, sums), []

    def losing(table, *arguments):
        calls.append(1)
        if len(calls) == number:
            lose()
        return summed(table, *arguments)

    monkeypatch.setattr(BlockTable, sums, losing)


def kill_a_worker() -> None:
    workers = [
        process
        for process in psutil.Process().children(recursive=True)
        if "multiprocessing.spawn" in " ".join(process.cmdline())
    ]
    assert len(workers) == 2
    workers[0].send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_rows_of_a_killed_worker_are_read_again_and_nothing_is_charged_twice(
    place, parted, seeded_noise, monkeypatch
):
    words = [*parted, *QUICK, "--seed-sampling", "7"]
    assert run(words) == 0
    lose_at(2, monkeypatch, kill_a_worker)
    assert run([*words, "--workers", "local:2"]) == 0
    assert_released_alike(place)


@pytest.mark.slow
def test_batches_with_workers_are_trained_as_in_memory_also_if_a_worker_is_killed(
    place, parted, seeded_noise, monkeypatch
):
    monkeypatch.setattr(clipped_gradients, "_LEAST_SPREAD", 100)
    monkeypatch.setattr(row_readers, "_PART_ROWS", 1000)
    assert run([*parted, *KAMINO]) == 0
    lose_at(20, monkeypatch, kill_a_worker, "summed")
    assert run([*parted, *KAMINO, "--workers", "local:2"]) == 0
    assert_released_alike(place)


@pytest.mark.slow
def test_persons_with_workers_are_those_in_memory_also_if_a_worker_is_killed(
    place, visits, seeded_noise, monkeypatch
):
    assert run([*visits, "--evaluate", "quick"]) == 0
    lose_at(2, monkeypatch, kill_a_worker)
    assert run([*visits, "--evaluate", "quick", "--workers", "local:2"]) == 0
    assert_released_alike(place)


HOSPITAL = """
name: hospital
privacy: {unit: {table: patients}, relation: add_remove, rows: {public: 900},
  budget: {epsilon: 8, delta: 1e-5, per: year}}
tables:
  wards:
    source: {path: FOLDER/wards.csv}
    key: id
    rows: {public: 20}
    attributes:
      id: {type: text, pattern: "W{00..99}", provenance: numbering}
      floor: {type: integer, min: 0, max: 3, provenance: plan}
  patients:
    source: {path: FOLDER/patients.csv}
    key: id
    attributes:
      id: {type: text, pattern: "P{0001..9999}", provenance: numbering}
      age: {type: integer, min: 0, max: 9, provenance: form}
  visits:
    source: {path: FOLDER/visits.csv}
    key: id
    rows: {public: 2000}
    references: {patient: {table: patients, max_rows: 4}, ward: {table: wards, max_rows: 400}}
    attributes:
      id: {type: text, pattern: "V{00001..99999}", provenance: numbering}
      patient: {type: text, pattern: "P{0001..9999}", provenance: numbering}
      ward: {type: text, pattern: "W{00..99}", provenance: numbering}
      cost: {type: integer, min: 0, max: 9, provenance: form}
      stay: {type: integer, min: 0, max: 9, provenance: form}
    constraints:
      - {name: longer costs more, deny: "t1.stay > t2.stay and t1.cost < t2.cost", soft: true}
  drugs:
    source: {path: FOLDER/drugs.csv}
    rows: {public: 2000}
    references: {visit: {table: visits, max_rows: 3}}
    attributes:
      visit: {type: text, pattern: "V{00001..99999}", provenance: numbering}
      kind: {type: categorical, values: [a, b, c], provenance: list}
release: {method: relational-mixture, epsilon: 2, delta: 1e-6}
"""


@pytest.fixture
def hospital(place, parted, monkeypatch):
    """The command of a release of four tables; one patient has a thousand visits."""
    monkeypatch.setattr(row_readers, "_PART_ROWS", 1000)
    rng, folder = np.random.default_rng(6), place.spec.parent
    wards = pd.DataFrame({"id": [f"W{n:02}" for n in range(20)], "floor": np.arange(20) % 4})
    patients = pd.DataFrame({"id": [f"P{n:04}" for n in rng.permutation(np.arange(1, 901))]})
    patients["age"] = rng.integers(0, 10, len(patients))
    owners = rng.permutation([*[1] * 1000, *rng.integers(1, 950, 1500)])  # some name nobody
    visits = pd.DataFrame({"id": [f"V{n:05}" for n in range(1, len(owners) + 1)]})
    visits["patient"] = [f"P{n:04}" for n in owners]
    visits["ward"] = [f"W{n:02}" for n in rng.integers(0, 22, len(visits))]
    visits["stay"] = rng.integers(0, 10, len(visits))
    visits["cost"] = np.minimum(visits["stay"] + rng.integers(0, 2, len(visits)), 9)
    drugs = pd.DataFrame({"visit": rng.choice(visits["id"], 2000)})
    drugs["kind"] = rng.choice(["a", "b", "c"], len(drugs))
    tables = {"wards": wards, "patients": patients, "visits": visits, "drugs": drugs}
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    place.spec.write_text(HOSPITAL.replace("FOLDER", str(folder)), encoding="utf-8")
    return [*parted, "--seed-sampling", "7", "--evaluate", "quick"]


@pytest.mark.slow
def test_several_tables_with_workers_are_those_in_memory_also_if_a_worker_is_killed(
    place, hospital, seeded_noise, monkeypatch
):
    assert run(hospital) == 0
    lose_at(3, monkeypatch, kill_a_worker)
    assert run([*hospital, "--workers", "local:2"]) == 0
    files = synthetic(place)
    assert len(files) == 8
    assert files[:4] == files[4:]
    assert [release.state for release in charges(place)] == [State.CANDIDATE] * 2


@pytest.mark.slow
def test_several_tables_whose_keys_name_several_rows_are_refused_at_no_charge(place, hospital):
    visits = pd.read_csv(place.spec.parent / "visits.csv")
    visits.loc[2400, "id"] = visits.loc[0, "id"]
    visits.to_csv(place.spec.parent / "visits.csv", index=False)
    assert run(hospital) == 2
    assert run([*hospital, "--workers", "local:2"]) == 2
    assert "rows have the same key" in refused_alike(place)[0]
    assert [release.state for release in charges(place)] == [State.REFUNDED] * 2


def units_of_all_tables(place) -> str:
    place.edit("{table: patients}, relation: add_remove, rows: {public: 900}", "ROW")
    place.edit("ROW", "row, relation: add_remove, rows: {public: 20}")
    place.edit("    rows: {public: 20}\n", "")
    place.edit("patients.csv}", "patients.csv}\n    rows: {public: 900}")
    place.edit("max_rows: 400", "max_rows: 110")
    return "units are rows of several tables"


def drugs_given_by_patients(place) -> str:
    kind = "kind: {type: categorical"
    by = 'by: {type: text, pattern: "P{0001..9999}", nullable: true, provenance: numbering}'
    place.edit(kind, f"{by}\n      {kind}")
    place.edit("{visit: {table", "{by: {table: patients, max_rows: 3}, visit: {table")
    drugs = pd.read_csv(place.spec.parent / "drugs.csv")
    drugs.assign(by="P0001").to_csv(place.spec.parent / "drugs.csv", index=False)
    return "'drugs.by' may lead from one unit to another"


@pytest.mark.parametrize("joined", [units_of_all_tables, drugs_given_by_patients])
def test_tables_that_join_units_are_refused_before_the_charge(place, hospital, capsys, joined):
    said = joined(place)
    assert run([*hospital, "--epsilon", "8", "--workers", "local:2"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert f"--workers cannot be used here: {said}; such tables" in error
    assert "nothing was charged" in error
    assert charges(place) == []


@pytest.mark.slow
def test_a_lost_cluster_is_named_and_the_same_command_resumes_without_it(
    place, parted, monkeypatch, tmp_path, capsys
):
    with dask_cluster(tmp_path) as cluster:
        cluster.add_worker()
        lose_at(3, monkeypatch, cluster.kill)
        assert run([*parted, *MIXTURE, "--workers", cluster.address]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the cluster of workers was lost" in said
    assert "run the same command again" in said
    assert run([*parted, *MIXTURE]) == 0
    assert "resumes release" in " ".join(capsys.readouterr().err.split())
    assert [release.state for release in charges(place)] == [State.CANDIDATE]


OTHER = """
import cloister.version
cloister.version.__version__ = "0.0.1"
"""

OTHER_PYARROW = """
from cloister.tasks.data import workers
workers._software()["pyarrow"] = "0.0.2"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "preload", "hidden", "said"),
    [
        (["--memory-limit", "1GB"], "", True, "would write rows to their disks"),
        (["--memory-limit", "0"], OTHER, True, "have cloister 0.0.1+"),
        (["--memory-limit", "0"], OTHER_PYARROW, True, "have pyarrow 0.0.2, and the process"),
        (["--memory-limit", "0"], "", False, "show on a web page how much they hold"),
    ],
)
def test_workers_that_show_or_write_rows_or_have_other_versions_are_refused(
    place, parted, monkeypatch, tmp_path, capsys, words, preload, hidden, said
):
    (tmp_path / "loaded.py").write_text(preload)
    with dask_cluster(tmp_path, hidden=hidden) as cluster:
        cluster.add_worker(*words, "--preload", str(tmp_path / "loaded.py"))
        assert run([*parted, *QUICK, "--workers", cluster.address]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error and "nothing was charged" in error
    assert charges(place) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("local:0", "--workers is local:N or tls://HOST:PORT, not 'local:0'"),
        ("tcp://127.0.0.1:8786", "not 'tcp://127.0.0.1:8786'"),
        pytest.param(
            *("tls://127.0.0.1:9", "needs certificates: name ca-file"), marks=pytest.mark.slow
        ),
    ],
)
def test_addresses_without_tls_or_without_a_scheduler_are_refused(
    place, parted, capsys, address, said
):
    assert run([*parted, *QUICK, "--workers", address]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert charges(place) == []


def test_workers_that_cannot_be_started_are_named_before_the_charge(
    place, parted, monkeypatch, capsys
):
    def killed(**_: object) -> None:
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", killed)
    assert run([*parted, *QUICK, "--workers", "local:2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the processes of --workers local:2 cannot be started" in said
    assert charges(place) == []


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_named(place, parted, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(module, "_SECONDS", 1)
    with dask_cluster(tmp_path) as cluster:
        cluster.kill()
        assert run([*parted, *QUICK, "--workers", cluster.address]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"no scheduler of Dask with these certificates answers at {cluster.address}" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("scheduler", "certificate has expired"),
        ("client", "certificate expired"),
        ("worker", "the cluster has no workers; start some"),
    ],
)
def test_an_expired_certificate_is_named_before_the_charge(
    place, parted, monkeypatch, tmp_path, capsys, role, said
):
    monkeypatch.setattr(module, "_SECONDS", 5)
    with dask_cluster(tmp_path, expired=[role]) as cluster:
        cluster.add_worker()
        assert run([*parted, *QUICK, "--workers", cluster.address]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error and "nothing was charged" in error
    assert charges(place) == []


SLOW = """
import time
from functools import partial
from cloister.tasks.data import workers

def slowly(called, *arguments):
    time.sleep(0.2)
    return called(*arguments)

workers._called = partial(slowly, workers._called)
"""


@pytest.mark.slow
def test_a_slow_worker_counts_nothing_twice(place, parted, seeded_noise, tmp_path):
    """Dask has the other one take parts of it over."""
    assert run([*parted, *QUICK, "--seed-sampling", "7"]) == 0
    (tmp_path / "loaded.py").write_text(SLOW)
    with dask_cluster(tmp_path) as cluster:
        cluster.add_worker("--memory-limit", "0", "--preload", str(tmp_path / "loaded.py"))
        cluster.add_worker()
        words = ["--seed-sampling", "7", "--workers", cluster.address]
        assert run([*parted, *QUICK, *words]) == 0
    assert_released_alike(place)


NARROW = """
from cloister.tasks.data import row_readers

def without_room(part, spec):
    raise MemoryError

row_readers.read_part = without_room
"""

ENDED = """
import os, signal
from cloister.tasks.data import row_readers
row_readers.read_part = lambda part, spec: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preload", "said"),
    [(NARROW, "has too little memory"), (ENDED, "the cluster of workers was lost (KilledWorker)")],
)
def test_workers_without_memory_end_the_run_at_no_charge(
    place, parted, tmp_path, capsys, preload, said
):
    """An allocation that fails is an error; the system ends a process, and Dask starts others."""
    (tmp_path / "loaded.py").write_text(preload)
    with dask_cluster(tmp_path) as cluster:
        cluster.add_worker("--memory-limit", "0", "--preload", str(tmp_path / "loaded.py"))
        assert run([*parted, *QUICK, "--workers", cluster.address]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error and "run the same command again" in error
    assert [release.state for release in charges(place)] == [State.REFUNDED]


def in_two_files(place, change) -> None:
    """The clubs as a folder of two Parquet files, of which ``change`` makes the second another."""
    frame, folder = pd.read_csv(place.data), place.folder / "clubs"
    folder.mkdir()
    frame[:900].to_parquet(folder / "1.parquet")
    change(frame[900:]).to_parquet(folder / "2.parquet")
    place.edit(str(place.data), str(folder))


def test_a_part_with_other_columns_is_refused_before_the_charge(place, parted, capsys):
    in_two_files(place, lambda rows: rows.rename(columns={"age": "years"}))
    assert run([*parted, *QUICK, "--workers", "local:2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "2.parquet: the declared column(s) 'age' are missing" in said
    assert charges(place) == []


@pytest.mark.slow
def test_a_part_in_other_types_is_read_as_in_memory(place, parted, seeded_noise):
    in_two_files(place, lambda rows: rows.astype({"age": str, "income": float}))
    for words in ([], ["--workers", "local:2"]):
        assert run([*parted, *QUICK, "--seed-sampling", "7", *words]) == 0
    assert_released_alike(place)


def rows_outside_the_domain(place) -> None:
    place.edit("max: 80", "max: 60")


def lines_with_a_cell_more(place) -> None:
    lines = place.data.read_text().splitlines()
    lines[700] += ",1"
    place.data.write_text("\n".join([*lines, lines[700], ""]))


@pytest.mark.slow
@pytest.mark.parametrize("faulty", [rows_outside_the_domain, lines_with_a_cell_more])
def test_faults_are_named_by_their_numbers_in_the_whole_file(place, parted, faulty):
    faulty(place)
    place.edit("constraints:", "validation: {on_invalid: fail}\nconstraints:")
    assert run([*parted, *QUICK]) == 2
    assert run([*parted, *QUICK, "--workers", "local:2"]) == 2
    assert refused_alike(place)


def test_what_workers_cannot_hold_is_refused_before_the_charge(place, parted, capsys):
    place.edit("method: kamino", "method: deniability, guarantee: plausible-deniability")
    assert run([*parted, "--workers", "local:2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--workers cannot be used here: method 'deniability' divides the rows" in said
    assert charges(place) == []


def stored_in(url: str, place) -> None:
    """Move the clubs into the table of a database, which the spec then reads."""
    frame, engine = pd.read_csv(place.data), sa.create_engine(url)
    frame.to_sql("clubs", engine, index=False)
    engine.dispose()
    place.edit(f"{{path: {place.data}}}", f'{{url: "{url}", table: clubs}}')


@pytest.mark.slow
def test_workers_read_one_snapshot_of_a_table_of_postgresql(place, parted, seeded_noise):
    with schema() as url:
        stored_in(url, place)
        assert run([*parted, *QUICK, "--seed-sampling", "7"]) == 0
        assert run([*parted, *QUICK, "--seed-sampling", "7", "--workers", "local:2"]) == 0
    assert_released_alike(place)


def test_workers_refuse_a_database_whose_parts_may_change(place, parted, capsys):
    stored_in(f"sqlite:///{place.folder}/clubs.db", place)
    assert run([*parted, *QUICK, "--workers", "local:2"]) == 2
    assert "workers read files, and tables of PostgreSQL" in capsys.readouterr().err
    assert charges(place) == []


@pytest.mark.slow
def test_workers_refuse_a_view_before_a_charge(place, parted, capsys):
    with schema() as url:
        stored_in(url, place)
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE VIEW seen AS SELECT * FROM clubs"))
        engine.dispose()
        place.edit("table: clubs", "table: seen")
        assert run([*parted, *QUICK, "--workers", "local:2"]) == 2
        said = capsys.readouterr().err
        assert "'seen' of source.url is a view" in said and "this run charged nothing" in said
        assert charges(place) == []
        assert run([*parted, *QUICK]) == 0


TWICE = """
import cloister, sys
print("from its first line", flush=True)
options = dict(method="independent", epsilon="0.1", delta="0", evaluate="none")
cloister.release(sys.argv[1], **options)
cloister.release(sys.argv[1], workers="local:1", **options)
"""


@pytest.mark.slow
def test_a_program_that_workers_run_anew_releases_nothing_in_them(place, tmp_path):
    (tmp_path / "program.py").write_text(TWICE)
    command = [sys.executable, str(tmp_path / "program.py"), str(place.spec)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.count("from its first line") > 1
    assert len(charges(place)) <= 2
    assert "put what calls Cloister under: if __name__" in done.stderr


@pytest.mark.slow
def test_workers_answer_nobody_without_a_certificate(place):
    with workers_of("local:1") as workers:
        ports = {
            connection.laddr.port
            for process in (psutil.Process(), *psutil.Process().children(recursive=True))
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert len(list(workers.map(len, workers.hold(str, range(3))))) == 3
        for port in ports:
            for page in ("/json/counts.json", "/info/main/workers.html", "/metrics", "/health"):
                with suppress(OSError, http.client.HTTPException):
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
                    connection.request("GET", page)
                    assert connection.getresponse().status == 404
