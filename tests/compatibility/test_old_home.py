"""Homes of earlier versions: this one reads their ledgers, releases, models and journals.

Each is kept as an archive; home-*.md say what is in it. That of 0.2 is from before there was one
import name.
"""

import json
import tarfile
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

MEASURED, KILLED = "r-dxbw7at46r", "r-75mz0cd807"
FIRST = {"r-yk8drfnpdr": "cloister", "r-mnyyy2v5sj": "dpview", "r-0x7b6j99qh": "kamino"}
SECOND = {"r-wa9fees5k7": "mixture", "r-xh3sa11br1": "dpview"}
APPROVED = {"0.1": FIRST, "0.2": SECOND}
OTHERS = {"0.1": {MEASURED: "approved", KILLED: "spent"}, "0.2": {}}
LEFT_OUT = (  # too large to keep
    *("journals/r-0x7b6j99qh/journal.bin: is missing", "/home/mlflow/mlflow.db: is missing"),
    *("/home/dvc/", "/home/mlflow/", "/trained/"),
)
UNSEALED = f"{KILLED}/order.json: has no seal"
RELEASES = [(version, *each) for version, held in APPROVED.items() for each in held.items()]

each_release = pytest.mark.parametrize(
    ("old", "release", "method"), RELEASES, indirect=["old"], ids=lambda value: value
)
of_0_1 = pytest.mark.parametrize("old", ["0.1"], indirect=True)


@pytest.fixture(params=APPROVED)
def old(request, tmp_path, monkeypatch) -> tuple[str, Path]:
    """The version of an old home, and the folder with it and the files beside it."""
    with tarfile.open(Path(__file__).with_name(f"home-{request.param}.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return request.param, tmp_path


@pytest.fixture
def cloister(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command; its JSON."""

    def command(*words: object, code: int | None = 0) -> Any:
        capsys.readouterr()
        ended = run([*map(str, words), "--json"])
        said = capsys.readouterr()
        assert code in (None, ended), said.err
        return json.loads(said.out)

    return command


def findings(cloister: Callable[..., Any], *words: str) -> list[str]:
    """What ``cloister verify`` finds, but for what was too large to keep, or had no seal then."""
    found = cloister("verify", *words, code=None)["findings"]
    return [each for each in found if not any(gone in each for gone in (*LEFT_OUT, UNSEALED))]


def test_the_ledger_lists_every_release_and_all_verifies(old, cloister):
    version, _ = old
    approved, others = APPROVED[version], OTHERS[version]
    found = {release["release"]: release["state"] for release in cloister("ledger", "list")}
    assert found == dict.fromkeys(approved, "approved") | others
    (budget,) = cloister("budget", "show", "shops")
    spent = {"0.1": "3.5", "0.2": "2"}[version]
    assert (budget["granted"], budget["spent"]) == ("40", spent)
    unsealed = [each for each in cloister("verify", code=None)["findings"] if UNSEALED in each]
    assert len(unsealed) == (version == "0.1")
    for words in ((), *((release,) for release in found if release != KILLED)):
        assert findings(cloister, *words) == []


@each_release
def test_a_release_is_shown_as_it_was_charged_and_gives_rows(old, cloister, release, method):
    _, folder = old
    shown = cloister("ledger", "show", release)
    assert shown["method"] == method
    states = [step["state"] for step in shown["steps"]]
    assert states == ["reserved", "spent", "candidate", "approved"]
    assert cloister("report", release)["subject"]["id"] == release
    saved = load_saved(folder / "home" / "releases" / release / "model")
    assert (saved.method, saved.dataset) == (method, "shops")
    out = folder / "rows.parquet"
    assert cloister("sample", release, "--rows", 50, "--out", out, "--seed", 5)["rows"] == 50
    rows = pd.read_parquet(out)
    assert len(rows) == 50
    assert list(rows.columns) == list(load_spec(folder / "shops.yaml").attributes)
    assert (rows.groupby("town", observed=True)["region"].nunique() == 1).all()


@of_0_1
def test_an_altered_file_is_found(old):
    release = next(iter(FIRST))
    table = old[1] / "home" / "releases" / release / "public" / "synthetic.parquet"
    table.write_bytes(table.read_bytes()[:-1] + b"?")
    assert run(["verify", release]) == 1


def test_the_model_that_mlflow_kept_is_loaded_by_its_former_imports_and_draws_rows(old):
    from mlflow.pyfunc import load_model

    _, folder = old
    (code,) = (folder / "mlflow-model").glob("*.py")
    assert "from models.storage import" in code.read_text(encoding="utf-8")
    model, asked = load_model(str(folder / "mlflow-model")), pd.DataFrame({"rows": [20], "seed": 3})
    drawn = model.predict(asked)
    assert len(drawn) == 20
    pd.testing.assert_frame_equal(drawn, model.predict(asked))


@of_0_1
def test_a_reviewer_moves_an_old_release(old, cloister, capsys):
    assert cloister("review", "list") == []
    code = run(["review", "withdraw", MEASURED, "--by", "A. Officer", "--reason", "replaced"])
    assert code == 0, capsys.readouterr().err
    assert cloister("ledger", "show", MEASURED)["steps"][-1]["state"] == "withdrawn"
    assert findings(cloister) == []


def test_what_nothing_needs_goes_from_an_old_home_and_the_rest_verifies(old, cloister):
    """Releases of 0.1 have no list of their files: an entry alone says what is gone."""
    version, folder = old
    decided = {*APPROVED[version], *OTHERS[version]} - {KILLED}
    deleted = cloister("retention", "run")["deleted"]
    assert {each["release"] for each in deleted} == decided
    left = [KILLED] if version == "0.1" else []
    assert [path.name for path in (folder / "home" / "journals").iterdir()] == left
    assert findings(cloister) == []
    release = min(APPROVED[version])
    assert cloister("sample", release, "--rows", 5, "--out", folder / "rows.csv")["rows"] == 5
    assert cloister("retention", "run")["deleted"] == []


@of_0_1
def test_the_measured_spec_is_read(old):
    spec = load_spec(old[1] / "stores.yaml")
    assert {attribute.provenance for attribute in spec.attributes.values()} == {
        f"dp: release {MEASURED}, epsilon 2, delta 5e-7"
    }


@of_0_1
def test_the_unfinished_release_keeps_its_charge_and_gives_no_rows(old, cloister, capsys):
    shown = cloister("ledger", "show", KILLED)
    assert [step["state"] for step in shown["steps"]] == ["reserved", "spent"]
    assert run(["sample", KILLED, "--rows", "5", "--out", "more.parquet"]) == 2
    assert "approved releases only" in capsys.readouterr().err


@of_0_1
def test_the_command_of_the_unfinished_release_names_the_version_to_go_back_to(
    old, cloister, capsys, prefect_server
):
    (unfinished,) = cloister("ledger", "list", "--unfinished")
    assert (unfinished["release"], unfinished["begun_by"]) == (KILLED, "0.1.0+2d3e1f2aa6a43d69")
    spent = cloister("budget", "show", "shops")
    asked = ["--method", "kamino", "--epsilon", "0.5", "--evaluate", "none", "--rows", "100"]
    assert run(["release", "shops.yaml", *asked]) == 2
    said = capsys.readouterr().err
    assert "begun by version 0.1.0+2d3e1f2aa6a43d69" in said and "withdraw" in said
    assert cloister("budget", "show", "shops") == spent


@pytest.mark.parametrize("old", ["0.1", pytest.param("0.2", marks=pytest.mark.slow)], indirect=True)
def test_a_new_release_in_an_old_home_adds_to_what_was_spent(old, cloister, prefect_server):
    version, folder = old
    cheap = ("--method", "independent", "--epsilon", "0.25", "--delta", "0")
    made = cloister("release", "shops.yaml", *cheap, "--evaluate", "none", "--rows", "100")
    (budget,) = cloister("budget", "show", "shops")
    spent = {"0.1": ("3.75", "36.25"), "0.2": ("2.25", "37.75")}[version]
    assert (budget["spent"], budget["left"]) == spent
    cloister("review", "approve", made["release"], "--reason", "fine")
    released = folder / "home" / "releases" / made["release"] / "public" / "synthetic.parquet"
    assert len(pd.read_parquet(released))


@of_0_1
def test_the_journal_of_the_unfinished_release_is_whole_and_names_its_other_code(old):
    _, home = old
    folder = home / "home" / "journals" / KILLED
    fingerprint = json.loads((home / "fingerprint.json").read_text(encoding="utf-8"))
    with Journal.open(folder, fingerprint) as journal:
        assert journal.recorded > 3
        assert not journal.sealed
    with pytest.raises(JournalMismatch, match="code differ"):
        Journal.open(folder, fingerprint | {"code": code_version() + "+another"})
