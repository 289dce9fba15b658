"""A blip of a store fails no charged release: recording steps are retried, and record once."""

import json
import sqlite3
from collections.abc import Iterator

import pytest
from listeners import silent_listener
from quick_release import quick_release
from sqlalchemy import Engine, event

from cloister.errors import CloisterError, InputError, PrivacyError, StorageError, VerificationError
from cloister.flows.cli.app import run
from cloister.privacy.ledger import State
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.verify import verify_records


def late_imports():
    global ModelRegistry, Tracker, cloister, record_candidate, record_release, recording_step
    import cloister.tasks.release.publish
    from cloister.tasks.release.publish import record_candidate, record_release
    from cloister.tasks.stores.mlflow_registry import ModelRegistry
    from cloister.tasks.stores.mlflow_store import Tracker
    from cloister.tasks.stores.prefect_runs import recording_step


@pytest.fixture
def at_once(monkeypatch) -> None:
    """Attempts that follow each other without delay."""
    monkeypatch.setattr(record_release, "retry_delay_seconds", [0, 0, 0])


@pytest.fixture
def blips() -> Iterator[list[str]]:
    """Tables of the tracking store; writing to each fails once."""
    left = ["latest_metrics", "model_versions"]

    def fail(connection, _cursor, statement, *_):
        if "mlflow.db" in str(connection.engine.url):
            for table in left:
                if statement.startswith(f"INSERT INTO {table} "):
                    left.remove(table)
                    raise sqlite3.OperationalError("the server restarts")

    event.listen(Engine, "before_cursor_execute", fail)
    yield left
    event.remove(Engine, "before_cursor_execute", fail)


def test_a_paid_release_outlives_blips_of_its_stores(
    place, prefect_server, at_once, blips, monkeypatch, capsys
):
    answers = [OSError("the ledger's answer was lost")]

    def recorded(*given) -> None:
        record_candidate(*given)
        if answers:
            raise answers.pop()

    monkeypatch.setattr(cloister.tasks.release.publish, "record_candidate", recorded)
    assert run(quick_release(place, "--json", "--out", str(place.folder / "out"))) == 0
    said = capsys.readouterr()
    assert (blips, answers) == ([], [])
    assert said.err.count(" record failed") == 3
    assert_recorded_once(place.home, json.loads(said.out)["release"])
    (held,) = existing_ledger(place.home).releases()
    assert [moved.state for moved in held.steps] == [State.RESERVED, State.SPENT, State.CANDIDATE]
    assert verify_records(place.home, None)[1] == []
    assert verify_records(place.home, str(place.folder / "out"))[1] == []


@pytest.mark.slow
def test_a_copy_that_fails_is_made_by_the_next_attempt(
    place, prefect_server, at_once, monkeypatch, capsys
):
    """By then the folder holds the manifest and the statement of the attempt that failed."""
    left, copy = ["the disk is away"], cloister.tasks.release.publish.copy_whole

    def failing(*given) -> None:
        if left:
            raise StorageError(left.pop())
        copy(*given)

    monkeypatch.setattr(cloister.tasks.release.publish, "copy_whole", failing)
    words = ("--method", "independent", "--evaluate", "none", "--out", str(place.folder / "out"))
    assert run(["release", str(place.spec), *words]) == 0
    assert capsys.readouterr().err.count(" record failed") == 1
    assert verify_records(place.home, None)[1] == []
    assert verify_records(place.home, str(place.folder / "out"))[1] == []


def assert_recorded_once(home, release: str) -> None:
    """One run with one child a stage, one model, one version."""
    tracker = Tracker.open(home.tracking, home.artifacts)
    version = ModelRegistry(tracker.client).find(release)
    assert version.version in (1, "1")
    run_id = version.run_id
    assert len(tracker.models(run_id)) == 1
    runs = {each: tracker.client.get_run(each).info for each in tracker.runs(run_id)}
    assert {run.status for run in runs.values()} == {"FINISHED"}
    del runs[run_id]
    assert len({child.run_name for child in runs.values()}) == len(runs)


@pytest.mark.parametrize(
    ("error", "attempts", "message"),
    [
        (InputError, 1, "^it cannot be$"),
        (PrivacyError, 1, "^it cannot be$"),
        (VerificationError, 1, "^it cannot be$"),
        (StorageError, 4, "^it cannot be$"),
        (ValueError, 4, "^step 'record' failed inside"),
    ],
)
def test_what_no_repetition_mends_is_not_repeated(prefect_server, error, attempts, message):
    made = []

    @recording_step("record", "record")
    def record() -> None:
        made.append(error)
        raise error("it cannot be")

    record.retry_delay_seconds = [0, 0, 0]
    with pytest.raises(CloisterError, match=message):
        record()
    assert len(made) == attempts


SILENT = [
    ("MLFLOW_TRACKING_URI", "http://{}"),
    ("MLFLOW_TRACKING_URI", "mysql+pymysql://{}"),
    ("CLOISTER_REMOTE", "http://{}"),
    ("CLOISTER_REMOTE", "s3://bucket"),
]


@pytest.mark.parametrize(("name", "form"), SILENT)
def test_a_store_that_does_not_answer_is_named_before_the_charge(
    place, prefect_server, name, form, monkeypatch, capsys
):
    monkeypatch.setattr("cloister.tasks.stores.mlflow_database.PATIENCE", 0.2)
    monkeypatch.setattr("cloister.tasks.stores.dvc_store.PATIENCE", 0.2)
    with silent_listener() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv(name, form.format(f"127.0.0.1:{port}"))
        assert run(quick_release(place)) == 2
    *_, failed, line = capsys.readouterr().err.splitlines()
    step = "tracking" if name.startswith("MLFLOW") else "remote"
    assert failed.endswith(f" {step} failed")
    assert f"127.0.0.1:{port} does not answer" in line
    assert name in line and line.endswith("this run charged nothing")
    assert existing_ledger(place.home) is None
