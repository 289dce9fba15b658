"""A release that is killed goes on: the same answers from its journal, no second charge."""

import json
import shlex

import pandas as pd
import pytest
import yaml

from cloister.errors import CloisterError
from cloister.flows.cli.app import run as cli
from cloister.privacy.door.journal import Journal
from cloister.privacy.ledger import State
from cloister.tasks.home.process import code_version
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.verify import verify_records
from cloister.tasks.requests import plan


def late_imports():
    global cloister
    import cloister.tasks.release.certify


pytestmark = pytest.mark.usefixtures("prefect_server", "brief_training")


@pytest.fixture
def words(place) -> list[str]:
    """The command of a release."""
    return ["release", str(place.spec), "--out", str(place.folder / "out"), "--evaluate", "none"]


def journal(place) -> bytes:
    return next((place.home.folder / "journals").rglob("journal.bin")).read_bytes()


def ended(*_: object) -> None:
    raise CloisterError("ended here")


def forget_plans() -> None:
    """Have plans made anew, as another process does."""
    plan.sequence_of.cache_clear()
    plan.plan_along.cache_clear()


def end_at_answer(number: int, patch: pytest.MonkeyPatch) -> None:
    """Have a fit end with an error in place of the answer to a question."""
    answer, answers = Journal.answer, iter(range(1, number))

    def ending(held, *question):
        if next(answers, None) is None:
            raise CloisterError("ended here")
        return answer(held, *question)

    patch.setattr(Journal, "answer", ending)


def lose_validation(place) -> None:
    """Alter, then delete the findings on the data; verify names them, and nothing else."""
    (path,) = place.home.folder.glob("releases/*/internal/validation.json")
    content = path.read_text()
    assert verify_records(place.home, None)[1] == []
    path.write_text(content.replace("{", '{"refused": true,', 1))
    (found,) = verify_records(place.home, None)[1]
    assert found.startswith(f"{path} was altered; restore it, or run the command that began")
    path.unlink()
    (found,) = verify_records(place.home, None)[1]
    assert found.startswith(f"{path}: is missing; restore it, or run the command that began")


def test_an_unfinished_release_is_ended_by_the_command_that_the_ledger_names(
    place, words, monkeypatch, capsys
):
    """By the next version too, if that plans the same; it writes lost findings anew."""
    begun_by = code_version()
    with monkeypatch.context() as patch:
        end_at_answer(20, patch)
        assert cli(words) == 1
    held = journal(place)
    lose_validation(place)
    monkeypatch.setattr("cloister.tasks.home.process.__version__", "9.9.9")
    with monkeypatch.context() as patch:
        patch.setattr("cloister.models.kamino.plan._HISTOGRAMS", 0.2)
        forget_plans()
        assert cli(words) == 2 and journal(place) == held
    forget_plans()
    said = " ".join(capsys.readouterr().err.split())
    assert f"was begun by version {begun_by}, and this version plans" in said
    (begun,) = existing_ledger(place.home).releases()
    monkeypatch.chdir(place.folder)
    assert cli(["ledger", "show", begun.id, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["state"] == "spent: charged, but not finished"
    assert cli(["ledger", "list", "--unfinished"]) == 0
    assert f"{begun.id} is ended by: cloister release" in capsys.readouterr().out
    command, _, other = said["ended by"].partition(", or given up by: ")
    assert other == f"cloister review withdraw {begun.id} --reason TEXT"
    assert cli([*shlex.split(command)[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["release"] == begun.id
    assert journal(place).startswith(held)
    (release,) = existing_ledger(place.home).releases()
    assert release.state is State.CANDIDATE
    assert existing_ledger(place.home).budget("clubs", "row").spent == 1
    certificate = yaml.safe_load((place.folder / "out" / "certificate.yaml").read_text())
    assert certificate["software"]["earlier"][begun_by] >= 19
    assert verify_records(place.home, None)[1] == []


@pytest.mark.slow
def test_rows_drawn_after_a_crash_are_those_drawn_before(place, words, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(cloister.tasks.release.certify, "certify", ended)
        assert cli(words) == 1
    before = pd.read_parquet(next((place.home.folder / "releases").rglob("synthetic.parquet")))
    assert cli(words) == 0
    after = pd.read_parquet(place.folder / "out" / "synthetic.parquet")
    pd.testing.assert_frame_equal(after, before)


@pytest.mark.slow
def test_the_same_rows_in_any_order_meet_the_journal_and_other_data_never_does(
    place, words, monkeypatch, capsys
):
    """A database may give the rows of one query in another order each time."""
    with monkeypatch.context() as patch:
        end_at_answer(20, patch)
        assert cli(words) == 1
    header, *rows = place.data.read_text().splitlines()
    place.data.write_text("\n".join([header, *rows[:-1]]) + "\n")
    capsys.readouterr()
    assert cli(words) == 1
    said = capsys.readouterr().err
    assert "data" in said and "another" in said
    assert existing_ledger(place.home).releases()[0].state is State.SPENT
    place.data.write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert cli(words) == 0
    (release,) = existing_ledger(place.home).releases()
    assert existing_ledger(place.home).budget("clubs", "row").spent == 1
    assert release.state is State.CANDIDATE
