"""The tracking store mirrors a release: runs, stages, plans, spend, measures.

No row of the data.
"""

import json
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from listeners import silent_listener

from cloister.errors import StorageError
from cloister.evaluation.marginals import compare_marginals
from cloister.evaluation.report import Evaluation, Violations
from cloister.privacy.certificate.certificate import Certificate, StageSpend
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.version import __version__


def late_imports():
    global RunOrigin, Tracker, mlflow
    import mlflow
    import mlflow.pyfunc

    from cloister.tasks.stores.mlflow_store import RunOrigin, Tracker


RELEASE = "r-0123456789"


def artifacts(tracker, run: str, path: str | None = None) -> set[str]:
    return {file.path for file in tracker.client.list_artifacts(run, path)}


def test_a_release_has_one_run_that_is_found_again(tracker, run: str):
    assert tracker.begin(RELEASE, "small", "kamino") == run
    assert tracker.begin("r-other00000", "small", "kamino") != run
    tags = tracker.client.get_run(run).data.tags
    assert (tags["release.id"], tags["method"]) == (RELEASE, "kamino")
    assert tags["prefect.flow_run"] == "flow-1"


def test_stages_are_children_that_end_as_their_stage_ended(tracker, run: str):
    with tracker.stage(run, "search") as finished:
        assert mlflow.active_run() is None  # nor is there ever one
    with pytest.raises(ValueError, match="canary"), tracker.stage(run, "train") as failed:
        raise ValueError("canary")
    ended = [tracker.client.get_run(child) for child in (finished, failed)]
    assert [child.info.status for child in ended] == ["FINISHED", "FAILED"]
    assert {child.data.tags["mlflow.parentRunId"] for child in ended} == {run}
    assert [child.info.run_name for child in ended] == ["search", "train"]
    assert all("canary" not in str(child.to_dictionary()) for child in ended)


def test_a_stage_that_was_killed_is_ended_on_resume(tracker):
    run = tracker.begin("r-killed0000", "small", "kamino")
    stage = tracker.stage(run, "train")
    killed = stage.__enter__()
    assert tracker.begin("r-killed0000", "small", "kamino") == run
    assert tracker.client.get_run(killed).info.status == "KILLED"
    assert tracker.client.get_run(run).info.status == "RUNNING"
    tracker.finish(run, succeeded=True)
    assert tracker.client.get_run(run).info.status == "FINISHED"


def test_a_plan_is_an_artifact_and_its_plain_values_are_parameters(tracker, run: str):
    plain = {"steps": 200, "share": "1/4", "split": True, "base": "mixture", "long": "x" * 9000}
    blobs = {"tables": [["a", "b"]], "trainer": {"rate": 0.1}, "unset": None}
    plan = {"method": "kamino", "parameters": plain | blobs}
    tracker.log_params(run, {"epsilon": Fraction(1, 10), "rows": 500})
    for _ in range(2):
        tracker.log_plan(run, plan)
    shown = {"steps": "200", "share": "0.25", "split": "True", "base": "mixture"}
    params = tracker.client.get_run(run).data.params
    assert params == shown | {"epsilon": "0.1", "rows": "500", "long": "x" * 6000}
    assert "plan.json" in artifacts(tracker, run)


def test_a_run_that_has_a_parameter_keeps_it(tracker):
    """What an earlier version began, with other texts, is ended by this one."""
    run = tracker.begin("r-earlier000", "small", "kamino")
    tracker.client.log_param(run, "share", "1/4")
    tracker.log_plan(run, {"parameters": {"share": "1/4", "steps": 3}})
    assert tracker.client.get_run(run).data.params == {"share": "1/4", "steps": "3"}


def test_a_run_shows_who_made_it_by_what_and_since_when(tracker):
    began = datetime(2026, 11, 23, 12, tzinfo=UTC)
    origin = RunOrigin("anna", "cloister release", "ab" * 20, began, "Release of small.")
    run = tracker.begin("r-origin0000", "small", "kamino", origin=origin)
    tracker.finish(run, succeeded=True)
    ended = tracker.client.get_run(run)
    assert ended.info.start_time == began.timestamp() * 1000
    assert ended.info.end_time > ended.info.start_time
    assert ended.info.user_id == ended.data.tags["mlflow.user"] == "anna"
    assert ended.data.tags["mlflow.source.name"] == f"cloister release ({__version__})"
    assert ended.data.tags["mlflow.source.git.commit"] == "ab" * 20
    assert ended.data.tags["mlflow.note.content"] == "Release of small."


def test_names_that_are_paths_or_written_alike_stay_apart(tracker):
    names = ["../x", "a/../b", "/a", "a//b", ".", "..", " ", "a?b", "a!b", "é\U0001f600", "1"]
    names += ["y" * 300, "y" * 299]
    run = tracker.begin("r-names00000", "Default", "kamino")
    tracker.log_plan(run, {"parameters": {name: at for at, name in enumerate(names)}})
    about = {"purpose": "", "done": "", "accountant": "", "event": {"type": "laplace"}}
    stages = [StageSpend(name=name, epsilon=at, **about) for at, name in enumerate(names)]
    tracker.log_spend(run, stages, 1.0, "0")
    data = tracker.client.get_run(run).data
    assert sorted(data.params.values(), key=int) == [str(at) for at in range(len(names))]
    assert sorted(data.metrics.values()) == sorted([1.0, *map(float, range(len(names)))])


def test_spend_is_logged_per_stage_and_the_certificate_is_an_artifact(
    tracker, run: str, certificate: Certificate, tmp_path: Path
):
    epsilon, delta = certificate.guarantee.accounted.epsilon, certificate.guarantee.delta
    tracker.log_spend(run, certificate.stages, epsilon, delta)
    metrics = tracker.client.get_run(run).data.metrics
    spent = {f"epsilon.{stage.name}": stage.epsilon for stage in certificate.stages if stage.event}
    assert {name: metrics[name] for name in spent} == spent
    assert metrics["epsilon"] == epsilon
    assert "spend.json" in artifacts(tracker, run)
    (tmp_path / "certificate.yaml").write_text(certificate.to_yaml())
    tracker.log_certificate(run, tmp_path)
    assert artifacts(tracker, run, "certificate") == {"certificate/certificate.yaml"}


def test_measures_are_logged_without_numbers_of_real_rows(tracker, run, fitted, tmp_path):
    table = fitted.model.sample(100, SamplingSource(3))
    violations = (Violations("a <b>", True, 987654, 0, 3.5, 0.0),)
    marginals = compare_marginals(table, table)
    evaluation = Evaluation("quick", 31337, 100, marginals=marginals, violations=violations)
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "marginals.png").write_bytes(b"png")
    (tmp_path / "plots" / "violations.csv").write_text("987654")
    with tracker.stage(run, "evaluate") as child:
        tracker.log_evaluation(child, evaluation, tmp_path)
    logged = tracker.client.get_run(child).data
    assert logged.metrics["marginals.1_way.half_l1"] == 0
    assert logged.tags["internal"] == "true"
    assert artifacts(tracker, child, "evaluation") == {
        "evaluation/marginals.png",
        "evaluation/violations.json",
    }
    folder = Path(tracker.client.get_run(child).info.artifact_uri.removeprefix("file://"))
    text = (folder / "evaluation" / "violations.json").read_text()
    assert "synthetic_percent" in text
    assert "987654" not in text
    assert "31337" not in str(logged)


def test_a_dataset_is_named_with_a_keyed_digest_and_nothing_else(tracker, run: str):
    for _ in range(2):
        tracker.log_input(run, "small", "ab" * 32)
    (given,) = tracker.client.get_run(run).inputs.dataset_inputs
    assert (given.dataset.name, given.dataset.digest) == ("small", "ab" * 16)
    assert (given.dataset.schema, given.dataset.profile) == (None, None)
    assert given.dataset.source == '{"kept": "in the private home"}'


def test_what_is_recorded_again_takes_the_place_of_what_was(tracker, certificate):
    run = tracker.begin("r-again00000", "small", "kamino")
    for _ in range(2):
        with tracker.stage(run, "train") as child:
            tracker.log_spend(child, certificate.stages, 2.0, "1e-5")
    assert tracker.runs(run) == sorted([run, child])
    assert tracker.client.get_run(child).info.status == "FINISHED"
    folder = Path(tracker.client.get_run(child).info.artifact_uri.removeprefix("file://"))
    assert len(json.loads((folder / "spend.json").read_text())["data"]) == len(certificate.stages)
    logged = json.loads(tracker.client.get_run(child).data.tags["mlflow.loggedArtifacts"])
    assert logged == [{"path": "spend.json", "type": "table"}]


def test_an_unusable_store_is_one_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="tracking store cannot be used"):
        Tracker.open(f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}", tmp_path)


@pytest.mark.parametrize("scheme", ["http", "postgresql+psycopg", "mysql+pymysql"])
def test_a_store_that_does_not_answer_is_named_without_its_password(scheme, tmp_path, monkeypatch):
    """MLflow's client would ask it again for minutes."""
    monkeypatch.setattr("cloister.tasks.stores.mlflow_database.PATIENCE", 0.2)
    with silent_listener() as port, pytest.raises(StorageError) as caught:
        Tracker.open(f"{scheme}://me:secret@127.0.0.1:{port}/db", tmp_path)
    assert f"the tracking store at {scheme}://127.0.0.1:{port}/db does not" in str(caught.value)


def test_a_store_that_answers_with_its_own_error_is_not_asked_again(failing, tmp_path: Path):
    with pytest.raises(StorageError, match="does not answer"):
        Tracker.open(failing(503).replace("/api", ""), tmp_path)
