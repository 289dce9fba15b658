"""A registered model: it draws where its approval lies beside it, and its tags mirror the ledger.

It holds no pickle and no row of the data.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from cloister.errors import InputError, VerificationError
from cloister.models.one_table import OneTableModel
from cloister.models.storage import model_digest, save_model
from cloister.models.task import DatabaseTask
from cloister.privacy import signing
from cloister.privacy.certificate.certificate import Certificate
from cloister.privacy.certificate.manifest import RELEASE_TYPE, STATEMENTS, statement_name
from cloister.privacy.ledger import State
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.tasks.home.files import digest_of


def late_imports():
    global Basis, Model, ModelRegistry, ReleasedModel, Tracker, certify, charging, mlflow
    import mlflow
    import mlflow.pyfunc
    from bases import charging
    from mlflow.models import Model

    from cloister.tasks.release.basis import Basis
    from cloister.tasks.release.certify import certify
    from cloister.tasks.stores.mlflow_registry import ModelRegistry, ReleasedModel
    from cloister.tasks.stores.mlflow_store import Tracker


RELEASE = "r-0123456789"


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory) -> Path:
    folder, task = tmp_path_factory.mktemp("saved"), DatabaseTask.of("small", fitted.task)
    model = OneTableModel(task.schema, fitted.model)
    return save_model(folder / "model", "kamino", model, task, fitted.spec)


@pytest.fixture(scope="module")
def signer(tmp_path_factory) -> signing.FileSigner:
    """The house's key."""
    return signing.FileSigner.open(tmp_path_factory.mktemp("signing") / "house.pem")


def public_folder(folder: Path, certificate: Certificate) -> Path:
    (folder / "certificate.yaml").write_text(certificate.to_yaml(), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def public(certificate: Certificate, saved: Path, tmp_path_factory) -> Path:
    """The public folder of the release, whose certificate names the model."""
    named = certificate.model_copy(update={"model": model_digest(saved)})
    return public_folder(tmp_path_factory.mktemp("public"), named)


@pytest.fixture(scope="module")
def registered(tracker, run: str, saved: Path, public: Path, signer: signing.FileSigner):
    return ModelRegistry(tracker.client).register(run, ReleasedModel(saved, public, signer.key))


def decided(public: Path, state: State, signer: signing.FileSigner, release: str = RELEASE) -> Path:
    """The house's statement that the release of a public folder has a state."""
    facts = {"release": release, "state": state.value, "by": "officer", "time": "2026-11-24"}
    payload = signing.make_statement(
        signing.folder_digests(public, STATEMENTS), RELEASE_TYPE, facts
    )
    path = public / statement_name(state)
    signing.write_envelope(path, signing.sign(payload, signer), replace=True)
    return path


@pytest.fixture
def copied(registered, tmp_path: Path) -> Path:
    """A copy of the registered model that lies where no home is."""
    copy = shutil.copytree(registered.source.removeprefix("file://"), tmp_path / "copy")
    for path in (copy / "artifacts").glob("*.dsse.json"):
        path.unlink()
    return copy


@pytest.mark.filterwarnings("error:An input example")
def test_the_registered_model_draws_what_the_model_draws(
    tracker, registered, public: Path, signer: signing.FileSigner, fitted, tracking_uri: str
):
    statement = decided(public, State.APPROVED, signer)
    states = {RELEASE: State.APPROVED}
    ModelRegistry(tracker.client).mirror(RELEASE, states, [statement])
    mlflow.set_tracking_uri(tracking_uri)
    try:
        with pytest.warns(UserWarning, match=f"approved on .* by officer.*{RELEASE}"):
            served = mlflow.pyfunc.load_model(f"models:/small-kamino/{registered.version}")
        drawn = served.predict(pd.DataFrame({"rows": [40, 10], "seed": [5, 6]}))
        with pytest.raises(InputError, match="at least 1"):
            served.predict(pd.DataFrame({"rows": [0], "seed": [1]}))
        asked = pd.DataFrame({"rows": [20], "seed": [1]})
        bees = served.predict(asked, params={"where": '{"state-code": "B"}'})
        for unusable in ('{"state-code": "X"}', '{"town": "Aa"}', '{"id": "P00001"}', "[1]", "B"):
            with pytest.raises(InputError, match="declared values"):
                served.predict(asked, params={"where": unusable})
    finally:
        mlflow.set_tracking_uri(None)
    frames = [fitted.model.sample(n, SamplingSource(s)).frame() for n, s in ((40, 5), (10, 6))]
    expected = pd.concat(frames, ignore_index=True).drop(columns="id")
    pd.testing.assert_frame_equal(drawn.drop(columns="id"), expected)
    assert len(drawn) == 50
    assert set(bees["state-code"]) == {"B"} and len(bees) == 20


def test_without_a_signed_approval_no_copy_of_the_model_draws(copied: Path):
    with pytest.raises(VerificationError) as refused:
        mlflow.pyfunc.load_model(str(copied))
    said = str(refused.value)
    assert f"cloister review approve {RELEASE}" in said
    assert "withdrawn since is known where its home is alone" in said


def test_a_copy_beside_its_approval_draws(copied: Path, public: Path, signer: signing.FileSigner):
    shutil.copy(decided(public, State.APPROVED, signer), copied / "artifacts")
    with pytest.warns(UserWarning, match="known where its home is alone"):
        model = mlflow.pyfunc.load_model(str(copied))
    assert len(model.predict(pd.DataFrame({"rows": [5], "seed": [1]}))) == 5
    shutil.copy(decided(public, State.WITHDRAWN, signer), copied / "artifacts")
    with pytest.raises(VerificationError, match="was withdrawn"):
        mlflow.pyfunc.load_model(str(copied))


def test_an_approval_of_anything_else_is_none(copied, public, signer, tmp_path):
    def refused(path: Path, said: str) -> None:
        shutil.copy(path, copied / "artifacts" / "approved.dsse.json")
        with pytest.raises(VerificationError, match=said):
            mlflow.pyfunc.load_model(str(copied))

    refused(decided(public, State.CANDIDATE, signer), "another state than the model")
    refused(decided(public, State.APPROVED, signer, "r-other00000"), "another release")
    other = signing.FileSigner.open(tmp_path / "other.pem")
    refused(decided(public, State.APPROVED, other), "not signed by the house's key")
    (tmp_path / "public").mkdir()
    altered = (public / "certificate.yaml").read_text(encoding="utf-8")
    (tmp_path / "public" / "certificate.yaml").write_text(altered + "# mine", encoding="utf-8")
    refused(decided(tmp_path / "public", State.APPROVED, signer), "another certificate")
    shutil.copy(decided(public, State.APPROVED, signer), copied / "artifacts")
    with pytest.raises(VerificationError, match="not signed by the house's key"):
        # whoever has the house's key by another way trusts no key that lies in the store
        mlflow.pyfunc.load_model(str(copied), model_config={"house_key": other.key.pem})


def test_an_approval_by_a_later_key_of_the_house_is_followed(copied, public, signer, tmp_path):
    later, first = signing.FileSigner.open(tmp_path / "later.pem"), signing.Trust(signer.key)
    shutil.copy(decided(public, State.APPROVED, later), copied / "artifacts")
    trusts = [
        signing.sign_trust(first, signer),
        signing.sign_trust(first.with_house(later.key), signer, later),
    ]
    lines = [json.dumps(json.loads(each.text)) for each in trusts]
    (copied / "artifacts" / "trust.jsonl").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="approved"):
        assert mlflow.pyfunc.load_model(str(copied))


def test_the_registered_model_holds_no_pickle_and_an_example_without_data(tracker, run, registered):
    (model,) = tracker.models(run)
    folder = Path(tracker.client.get_logged_model(model).artifact_location.removeprefix("file://"))
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"model.json", "arrays.npz", "spec.json", "mlflow_pyfunc.py", "MLmodel"} <= names
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".joblib", ".pt"))]
    example = json.loads((folder / "input_example.json").read_text())
    inputs = {"columns": ["rows", "seed"], "data": [[10, 1]]}
    assert example == {"inputs": inputs, "params": {"where": ""}}


def test_the_model_has_one_page_with_its_signature_and_what_was_spent(
    tracker, run, registered, fitted
):
    (model,) = tracker.models(run)
    page = tracker.client.get_logged_model(model)
    assert (page.status, page.source_run_id, page.tags["dp.epsilon"]) == ("READY", run, "2")
    (output,) = tracker.client.get_run(run).outputs.model_outputs
    assert output.model_id == model
    assert registered.source == page.artifact_location
    shown = json.loads(page.tags["mlflow.modelVersions"])
    assert shown == [{"name": registered.name, "version": int(registered.version)}]
    signature = Model.load(page.artifact_location.removeprefix("file://")).signature
    assert signature.inputs.input_names() == ["rows", "seed"]
    assert [param.name for param in signature.params] == ["where"]
    drawn = fitted.model.sample(50, SamplingSource(1)).frame()
    assert signature.outputs.input_names() == list(drawn)
    types = {spec.name: spec.type.name for spec in signature.outputs}
    texts = dict.fromkeys(("id", "home town", "state-code"), "string")
    assert types == texts | {"wage <€>": "long", "since": "datetime"}
    assert signature.outputs.optional_input_names() == ["since"]


def test_a_version_says_what_was_spent_on_whom_and_is_registered_once(
    tracker,
    run: str,
    registered,
    certificate: Certificate,
    saved: Path,
    public: Path,
    signer: signing.FileSigner,
):
    version = ModelRegistry(tracker.client).find(RELEASE)
    spent = {"dp.epsilon": "2", "dp.delta": "1e-5", "dp.relation": "add_remove"}
    assert version.tags.items() >= spent.items()
    assert version.tags["release.id"] == RELEASE
    assert version.tags["dp.unit"] == "unit = one row of small; rows per unit = 1"
    assert version.tags["ledger.entry"] == f"{certificate.ledger.seq}:{certificate.ledger.hash}"
    assert version.tags["certificate.sha256"] == digest_of(public / "certificate.yaml")
    released = ReleasedModel(saved, public, signer.key)
    assert ModelRegistry(tracker.client).register(run, released).version == registered.version


@pytest.fixture(scope="module")
def stained(tracker, saved: Path, basis, signer: signing.FileSigner, tmp_path_factory):
    """A model of another method, with seeded noise."""
    run = tracker.begin("r-stained000", "small", "independent")
    request = basis.request.filled(method="independent")
    certificate = certify(
        replace(charging(basis, release="r-stained000"), request=request, secure=False)
    )
    folder = public_folder(tmp_path_factory.mktemp("stained"), certificate)
    return ModelRegistry(tracker.client).register(run, ReleasedModel(saved, folder, signer.key))


def test_a_version_is_a_candidate_from_birth_and_a_stained_model_is_tagged(stained):
    assert stained.tags["release.state"] == "candidate"
    assert stained.tags["dp.stain"] == "NOT PRIVATE"


@pytest.fixture
def second(tracker, registered, tmp_path: Path, certificate: Certificate) -> str:
    """Another release of the same registered model, as a version of an earlier version: no tag."""
    name = registered.name
    tags = {"release.id": "r-second0000"}
    version = tracker.client.create_model_version(name, registered.source, tags=tags)
    yield "r-second0000"
    tracker.client.delete_model_version(name, version.version)


def states_of(tracker, name: str) -> dict[str, str | None]:
    versions = tracker.client.search_model_versions(f"name = '{name}'")
    return {each.tags["release.id"]: each.tags.get("release.state") for each in versions}


def test_tags_mirror_the_ledger_and_the_only_published_version_has_the_alias(
    tracker, registered, second: str
):
    registry, name = ModelRegistry(tracker.client), registered.name
    for former in ("candidate", "approved"):  # of earlier versions
        tracker.client.set_registered_model_alias(name, former, registered.version)
    tracker.client.set_registered_model_alias(name, "mine", registered.version)
    mine, alone = {"mine": registered.version}, {"published": registered.version}
    moves = [
        ({RELEASE: State.APPROVED}, mine),
        ({RELEASE: State.PUBLISHED}, mine | alone),
        ({RELEASE: State.PUBLISHED, second: State.PUBLISHED}, mine),
        ({RELEASE: State.PUBLISHED, second: State.WITHDRAWN}, mine | alone),
        ({RELEASE: State.WITHDRAWN}, mine),
    ]
    for states, aliases in moves:
        registry.mirror(RELEASE, states)
        assert tracker.client.get_registered_model(name).aliases == aliases
        found = states_of(tracker, name)
        assert {release: found[release] for release in states} == states
    tracker.client.delete_registered_model_alias(name, "mine")


def test_unknown_releases_are_refused(tracker, registered):
    for unknown in ("r-unknown", "r-' or name = 'small-kamino"):
        with pytest.raises(InputError, match=f"no model of release {unknown}"):
            ModelRegistry(tracker.client).mirror(unknown, {})
