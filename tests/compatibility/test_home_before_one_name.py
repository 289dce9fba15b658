"""A home of 0.2.0 when models, tasks and flows were import names: all of it is still of use."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from cloister.flows.cli.app import run

MADE = Path(__file__).parent / "home-0.2"
LEFT_OUT = ("/home/dvc/", "/home/mlflow/", "/trained/")  # too large to keep here
APPROVED = ("r-wa9fees5k7", "r-xh3sa11br1")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of the home and of the files beside it."""
    folder = shutil.copytree(MADE, tmp_path / "old")
    for path in (folder / "home", *(folder / "home").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    monkeypatch.setenv("CLOISTER_HOME", str(folder / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


def said(capsys, *words):
    """What a command says as JSON."""
    capsys.readouterr()
    run([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def test_its_ledger_and_releases_verify(old, capsys):
    found = {release["release"]: release["state"] for release in said(capsys, "ledger", "list")}
    assert found == dict.fromkeys(APPROVED, "approved")
    for words in ((), *((release,) for release in APPROVED)):
        findings = said(capsys, "verify", *words)["findings"]
        ours = [each for each in findings if not any(store in each for store in LEFT_OUT)]
        assert ours == []


def test_what_nothing_needs_is_deleted_and_the_rest_verifies(old, capsys):
    deleted = said(capsys, "retention", "run")["deleted"]
    assert {each["release"] for each in deleted} == set(APPROVED)
    assert not list((old / "home" / "journals").iterdir())
    findings = said(capsys, "verify")["findings"]
    assert [each for each in findings if not any(store in each for store in LEFT_OUT)] == []


@pytest.mark.parametrize("release", APPROVED)
def test_its_models_give_rows(old, release):
    out = old / "rows.parquet"
    assert run(["sample", release, "--rows", "50", "--out", str(out), "--seed", "5"]) == 0
    rows = pd.read_parquet(out)
    assert len(rows) == 50
    assert (rows.groupby("town", observed=True)["region"].nunique() == 1).all()


def test_the_model_that_mlflow_kept_is_loaded_by_its_former_imports(old):
    from mlflow.pyfunc import load_model

    code = (old / "mlflow-model" / "mlflow_pyfunc.py").read_text(encoding="utf-8")
    assert "from models.storage import" in code
    drawn = load_model(str(old / "mlflow-model")).predict(pd.DataFrame({"rows": [20], "seed": [3]}))
    assert len(drawn) == 20


def test_a_new_release_adds_to_what_was_spent(old, prefect_server, monkeypatch, capsys):
    monkeypatch.chdir(old)
    cheap = ("--method", "independent", "--epsilon", "0.25", "--delta", "0")
    assert run(["release", "shops.yaml", *cheap, "--evaluate", "none", "--rows", "100"]) == 0
    (budget,) = said(capsys, "budget", "show", "shops")
    assert (budget["spent"], budget["left"]) == ("2.25", "37.75")
