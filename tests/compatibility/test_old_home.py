"""Homes of earlier versions: this one reads their ledgers, releases, models and journals."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cloister.errors import JournalMismatch
from cloister.flows.cli.app import run
from cloister.models.storage import load_saved
from cloister.privacy.door.journal import Journal
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.home.process import code_version

MADE = Path(__file__).parent / "home-0.1"
APPROVED = {"r-yk8drfnpdr": "cloister", "r-mnyyy2v5sj": "dpview", "r-0x7b6j99qh": "kamino"}
MEASURED, KILLED = "r-dxbw7at46r", "r-75mz0cd807"
LEFT_OUT = ("journals/r-0x7b6j99qh/journal.bin: is missing", "/home/mlflow/mlflow.db: is missing")


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the old home and of the files beside it."""
    folder = shutil.copytree(MADE, tmp_path / "old")
    for path in (folder / "home").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (folder / "home").chmod(0o700)
    monkeypatch.setenv("CLOISTER_HOME", str(folder / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


@pytest.fixture
def cloister(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command; its JSON."""

    def command(*words: object) -> Any:
        capsys.readouterr()
        code = run([*map(str, words), "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    return command


def test_the_ledger_lists_every_release(old, cloister):
    found = {release["release"]: release["state"] for release in cloister("ledger", "list")}
    assert found == {**dict.fromkeys(APPROVED, "approved"), MEASURED: "approved", KILLED: "spent"}
    (budget,) = cloister("budget", "show", "shops")
    assert (budget["granted"], budget["spent"]) == ("40", "3.5")


@pytest.mark.parametrize(("release", "method"), APPROVED.items())
def test_a_release_is_shown_as_it_was_charged(old, cloister, release, method):
    shown = cloister("ledger", "show", release)
    assert shown["method"] == method
    assert [step["state"] for step in shown["steps"]] == [
        "reserved",
        "spent",
        "candidate",
        "approved",
    ]
    assert cloister("report", release)["subject"]["id"] == release


def findings(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What ``cloister verify`` finds, but for what was too large to keep here."""
    capsys.readouterr()
    run(["verify", *words, "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    return [finding for finding in found if not any(gone in finding for gone in LEFT_OUT)]


def test_everything_verifies(old, capsys):
    assert findings(capsys) == []
    for release in (*APPROVED, MEASURED):
        assert findings(capsys, release) == []


def test_an_altered_file_is_found(old):
    release = next(iter(APPROVED))
    table = old / "home" / "releases" / release / "public" / "synthetic.parquet"
    table.write_bytes(table.read_bytes()[:-1] + b"?")
    assert run(["verify", release]) == 1


@pytest.mark.parametrize("release", APPROVED)
def test_rows_are_drawn_under_the_old_constraints(old, cloister, release):
    out = old / "rows.parquet"
    assert cloister("sample", release, "--rows", 50, "--out", out, "--seed", 5)["rows"] == 50
    rows = pd.read_parquet(out)
    assert len(rows) == 50
    assert list(rows.columns) == list(load_spec(old / "shops.yaml").attributes)
    assert (rows.groupby("town", observed=True)["region"].nunique() == 1).all()


@pytest.mark.parametrize(("release", "method"), APPROVED.items())
def test_a_model_says_the_method_that_fitted_it(old, release, method):
    saved = load_saved(old / "home" / "releases" / release / "model")
    assert (saved.method, saved.dataset) == (method, "shops")


def test_the_model_that_mlflow_kept_is_loaded_and_draws_rows(old):
    from mlflow.pyfunc import load_model

    model = load_model(str(old / "mlflow-model"))
    drawn = model.predict(pd.DataFrame({"rows": [20], "seed": [3]}))
    assert len(drawn) == 20
    pd.testing.assert_frame_equal(drawn, model.predict(pd.DataFrame({"rows": [20], "seed": [3]})))


def test_a_reviewer_moves_an_old_release(old, cloister, capsys):
    assert cloister("review", "list") == []
    code = run(["review", "withdraw", MEASURED, "--by", "A. Officer", "--reason", "replaced"])
    assert code == 0, capsys.readouterr().err
    assert cloister("ledger", "show", MEASURED)["steps"][-1]["state"] == "withdrawn"
    assert findings(capsys) == []


def test_what_nothing_needs_goes_from_an_old_home_and_the_rest_verifies(old, cloister, capsys):
    """Releases of 0.1 have no list of their files: an entry alone says what is gone."""
    deleted = cloister("retention", "run")["deleted"]
    assert {each["release"] for each in deleted} == {*APPROVED, MEASURED}
    assert sorted(path.name for path in (old / "home" / "journals").iterdir()) == [KILLED]
    assert findings(capsys) == []
    assert cloister("sample", min(APPROVED), "--rows", 5, "--out", old / "rows.csv")["rows"] == 5
    assert cloister("retention", "run")["deleted"] == []


def test_the_measured_spec_is_read(old, cloister):
    spec = load_spec(old / "stores.yaml")
    assert {attribute.provenance for attribute in spec.attributes.values()} == {
        f"dp: release {MEASURED}, epsilon 2, delta 5e-7"
    }


def test_the_unfinished_release_keeps_its_charge_and_gives_no_rows(old, cloister, capsys):
    shown = cloister("ledger", "show", KILLED)
    assert [step["state"] for step in shown["steps"]] == ["reserved", "spent"]
    assert run(["sample", KILLED, "--rows", "5", "--out", str(old / "more.parquet")]) == 2
    assert "approved releases only" in capsys.readouterr().err


def test_the_command_of_the_unfinished_release_names_the_version_to_go_back_to(
    old, cloister, capsys, prefect_server, monkeypatch
):
    (unfinished,) = cloister("ledger", "list", "--unfinished")
    assert (unfinished["release"], unfinished["begun_by"]) == (KILLED, "0.1.0+2d3e1f2aa6a43d69")
    spent = cloister("budget", "show", "shops")
    monkeypatch.chdir(old)
    asked = ["--method", "kamino", "--epsilon", "0.5", "--evaluate", "none", "--rows", "100"]
    assert run(["release", "shops.yaml", *asked]) == 2
    said = capsys.readouterr().err
    assert "begun by version 0.1.0+2d3e1f2aa6a43d69" in said and "withdraw" in said
    assert cloister("budget", "show", "shops") == spent


def test_a_new_release_in_an_old_home_adds_to_what_was_spent(
    old, cloister, prefect_server, monkeypatch
):
    monkeypatch.chdir(old)
    made = cloister(
        *("release", "shops.yaml", "--method", "independent", "--epsilon", "0.25"),
        *("--evaluate", "none", "--rows", "100"),
    )
    (budget,) = cloister("budget", "show", "shops")
    assert (budget["spent"], budget["left"]) == ("3.75", "36.25")
    cloister("review", "approve", made["release"], "--reason", "fine")
    assert len(
        pd.read_parquet(old / "home/releases" / made["release"] / "public/synthetic.parquet")
    )


def test_the_journal_of_the_unfinished_release_is_whole_and_names_its_other_code(old):
    folder = old / "home" / "journals" / KILLED
    fingerprint = json.loads((MADE / "fingerprint.json").read_text(encoding="utf-8"))
    with Journal.open(folder, fingerprint) as journal:
        assert journal.recorded > 3
        assert not journal.sealed
    with pytest.raises(JournalMismatch, match="code differ"):
        Journal.open(folder, fingerprint | {"code": code_version() + "+another"})
