"""One release by the flow: what it charged, wrote, recorded and left behind."""

import gc
import json
import shutil
import stat
import weakref
from pathlib import Path

import pandas as pd
import yaml
from quick_release import quick_release
from receiver import receive

from cloister.constraints.counting import violation_reports
from cloister.flows.cli.app import run
from cloister.privacy.certificate.manifest import verify_folder
from cloister.privacy.door.journal_format import ANSWER, JOURNAL_NAME, read_frames, read_journal
from cloister.privacy.door.table import PlanBudget
from cloister.privacy.events import compose, event_from_json
from cloister.privacy.ledger import Ledger, State
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.data.tables import read_synthetic
from cloister.tasks.home.process import code_version, flow_version
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.kept_request import kept_request
from cloister.tasks.release.verify import verify_records
from cloister.tasks.requests.resolved import ResolvedRequest, public_context_of


def late_imports():
    global \
        cloister, \
        FlowRunFilter, \
        FlowRunFilterName, \
        ModelRegistry, \
        StateType, \
        flow_module, \
        get_client
    global publish_finished
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
    from prefect.client.schemas.objects import StateType

    import cloister.tasks.release.publish
    from cloister.flows import release as flow_module
    from cloister.tasks.release.publish import publish_finished
    from cloister.tasks.stores.mlflow_registry import ModelRegistry


FOLLOWS = {
    "plan_release": set(),
    "reserve_budget": {"plan_release"},
    "open_data": {"reserve_budget"},
    "fit_model": {"open_data"},
    "sample_rows": {"fit_model"},
    "evaluate_release": {"sample_rows"},
    "write_certificate": {"sample_rows"},
    "record_release": {"evaluate_release", "write_certificate"},
}
"""Eight nodes, and no two edges that cross: a path that parts once and meets again."""

STEPS = ["plan", "reserve", "open", "fit", "sample", "evaluate", "certify", "record"]

RECORDING = {"record"}


def order_of(released) -> ResolvedRequest:
    return kept_request(released.place.home, released.id)


def ledger_of(released) -> Ledger:
    found = existing_ledger(released.place.home)
    assert found is not None
    return found


def test_a_candidate_was_charged_once_to_the_budget_that_the_spec_granted(released):
    ledger = ledger_of(released)
    held = ledger.release(released.id)
    assert [moved.state for moved in held.steps] == [State.RESERVED, State.SPENT, State.CANDIDATE]
    assert float(ledger.budget("clubs", "row").spent) == 1
    opened, granted = ledger.entries()[:2]
    assert (opened.kind, granted.kind) == ("account_opened", "budget_granted")
    assert opened.body["places"] == [str(released.place.data.resolve())]
    assert "declared in the spec" in opened.body["reason"]
    assert opened.body["reason"] == granted.body["reason"]


def test_the_table_is_like_the_data_and_keeps_the_hard_constraints(released):
    synthetic = pd.read_parquet(released.out / "synthetic.parquet")
    assert list(synthetic) == list(pd.read_csv(released.place.data))
    assert len(synthetic) == 2000
    assert str(synthetic["income"].dtype) == "Int64"
    assert synthetic["member"].dtype == bool
    assert 0.02 < synthetic["income"].isna().mean() < 0.3
    text = pd.read_csv(released.out / "synthetic.csv").astype({"income": "Int64"})
    pd.testing.assert_frame_equal(text, synthetic, check_dtype=False, check_exact=True)
    lead = public_context_of(order_of(released)).task.lead
    table = read_synthetic(released.out / "synthetic.parquet", lead)
    assert [report.violations for report in violation_reports(lead.hard, table)] == [0, 0]


def test_the_folder_handed_on_is_whole_and_is_the_one_kept(released):
    assert verify_folder(released.out) == []
    names = {path.name for path in released.out.iterdir()}
    assert names == {
        *("synthetic.parquet", "synthetic.csv", "schema.py", "schema.yaml", "report.html"),
        *("certificate.yaml", "certificate.html", "manifest.json", "candidate.dsse.json"),
    }
    for name in names:
        kept = released.folder / "public" / name
        assert (released.out / name).read_bytes() == kept.read_bytes()


def test_receivers_check_the_rows_without_cloister(released, tmp_path):
    assert receive(released.out).stdout.split() == ["synthetic", "2000"]
    assert "python schema.py" in (released.out / "certificate.html").read_text()
    certificate = yaml.safe_load((released.out / "certificate.yaml").read_text())
    assert {"schema.py", "schema.yaml"} < set(certificate["artefacts"])
    changed = Path(shutil.copytree(released.out, tmp_path / "out"))
    frame = pd.read_parquet(changed / "synthetic.parquet")
    frame.assign(age=frame["age"] + 1000).to_parquet(changed / "synthetic.parquet")
    assert "SchemaErrors" in receive(changed).stderr


def test_figures_and_state_stay_inside_and_are_readable_by_their_owner_alone(released):
    text = (released.out / "certificate.yaml").read_text()
    guarantee = yaml.safe_load(text)["guarantee"]
    assert guarantee["epsilon"] == "1" and guarantee["accounted"]["epsilon"] <= 1
    assert "marginals" not in text
    evaluation = json.loads((released.folder / "internal" / "evaluation.json").read_text())
    assert evaluation["internal"] is True
    assert not (released.out / "internal").exists()
    home = released.place.home
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((home.folder / "key").stat().st_mode) == 0o600


def test_journal_is_sealed_and_holds_every_answer_of_the_plan(released):
    plan = json.loads((released.folder / "plan.json").read_text())
    events = compose(*(event_from_json(stage["event"]) for stage in plan["stages"]))
    planned = sum(PlanBudget(events).remaining.values())
    journal = released.place.home.journal(released.id) / JOURNAL_NAME
    content = journal.read_bytes()
    answers = [frame for frame in read_frames(content) if frame.kind == ANSWER]
    assert len(answers) == planned > 0
    assert read_journal(journal.parent).sealed
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    assert b"north" not in content


def test_each_step_ran_once_under_a_readable_name_and_nothing_was_persisted(released):
    names = [step["name"] for step in released.steps.values()]
    assert f"fit kamino for {released.id}" in names
    assert len(names) == len(set(names))
    assert all(step["runs"] == 1 and step["completed"] for step in released.steps.values())
    assert {name: set(step["follows"]) for name, step in released.steps.items()} == FOLLOWS
    assert not released.persisted


def test_steps_are_versioned_and_never_cached_or_persisted_and_only_those_that_record_are_retried():
    tasks = {
        value.name: value
        for value in vars(flow_module).values()
        if hasattr(value, "task_run_name") and value is not publish_finished
    }
    for name in STEPS:
        made = tasks[name]
        assert (made.retries, made.persist_result) == (3 if name in RECORDING else 0, False)
        delays = made.retry_delay_seconds if name in RECORDING else []
        assert delays == sorted(delays)
        assert (made.version, flow_module.release.version) == (code_version(), flow_version())
        assert type(made.cache_policy).__name__ == "_None"


def test_the_registry_and_pointers_name_the_model_and_the_files(released):
    home = released.place.home
    version = ModelRegistry.of(home).find(released.id)
    assert version.name == "clubs-kamino"
    assert (version.tags["dp.epsilon"], version.tags["release.id"]) == ("1", released.id)
    pointers = home.versions / "releases" / released.id
    assert {path.stem for path in pointers.glob("*.dvc")} == {
        *("input", "synthetic", "certificate", "_report.html", "_schema.py", "_schema.yaml")
    }


def test_the_server_shows_what_the_certificate_says_of_a_run_that_awaits_review(
    place, prefect_server, capsys
):
    assert run(quick_release(place, "--json")) == 0
    said = json.loads(capsys.readouterr().out)
    release, public = said["release"], Path(said["files"]["public"])
    text = (public / "certificate.yaml").read_text()
    certificate = yaml.safe_load(text)
    asked = {"artifacts": {"key": {"like_": release}}}
    named = FlowRunFilter(name=FlowRunFilterName(like_=f"clubs {release}"))
    with get_client(sync_client=True) as client:
        found = client.request("POST", "/artifacts/filter", json=asked).json()
        (flow,) = client.read_flow_runs(flow_run_filter=named)
    assert flow.name == f"clubs {release} {flow.expected_start_time.date()}"
    assert (flow.state.type, flow.state.name) == (StateType.COMPLETED, "AwaitingReview")
    shown = {artifact["key"].removeprefix(f"{release}-"): artifact["data"] for artifact in found}
    assert set(shown) == {"spend", "violations", "certificate"}
    assert all(artifact["flow_run_id"] for artifact in found)
    *stages, total = json.loads(shown["spend"])
    assert [(stage["stage"], stage["epsilon"]) for stage in stages] == [
        (stage["name"], stage["epsilon"]) for stage in certificate["stages"]
    ]
    assert total["epsilon"] == certificate["guarantee"]["accounted"]["epsilon"]
    assert [
        (rule["constraint"], rule["violations"]) for rule in json.loads(shown["violations"])
    ] == [(rule["name"], rule["violations"]) for rule in certificate["constraints"]]
    assert text in shown["certificate"]
    assert certificate["guarantee"]["meaning"][0] in shown["certificate"]


def test_rows_are_gone_when_the_flow_has_ended(place, prefect_server, monkeypatch):
    monkeypatch.setattr(cloister.tasks.release.publish, "register_release", lambda *_: "")
    monkeypatch.setattr(cloister.tasks.release.publish, "version_release", lambda *_: None)
    alive = []
    read = TablesSource.read_rows

    def watched(*given):
        rows, digest = read(*given)
        alive.append(weakref.ref(rows))
        return rows, digest

    monkeypatch.setattr(TablesSource, "read_rows", watched)
    assert run(quick_release(place)) == 0
    gc.collect()
    assert [rows() for rows in alive] == [None]


def test_everything_verifies(released):
    home = released.place.home
    places = ["the ledger", str(home.folder), f"release {released.id}"]
    assert verify_records(home, None) == (places, [])
    assert verify_records(home, str(released.out))[1] == []
