"""A release that is killed goes on: the same answers from its journal, no second charge."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run as cli
from cloister.privacy.ledger import State
from cloister.tasks.home.process import PACKAGE, code_version
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.verify import verify_records

RUN = """
import os, signal, sys
import cloister.tasks.stores.prefect_runs
cloister.tasks.stores.prefect_runs.Step = lambda function, follows, **about: function  # no server
import cloister.tasks.release.publish
cloister.tasks.release.publish.register_release = lambda *given: ""
cloister.tasks.release.publish.version_release = lambda *given: None
from cloister.flows.release import release
from cloister.tasks.home.process import reporting_to
from cloister.tasks.requests.release_request import ReleaseRequest

SPEC, OUT, DEADLY = sys.argv[1], sys.argv[2], sys.argv[3]

class Killer:
    def start(self, step): self.at(step, "started")
    def advance(self, step, done, total): self.at(step, str(done))
    def finish(self, step): self.at(step, "finished")
    def fail(self, step): pass
    def resume(self, release): print(f"resumed {release}", file=sys.stderr)
    def at(self, step, moment):
        if f"{step} {moment}" == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)

with reporting_to(Killer()):
    print(release.fn(ReleaseRequest(spec=SPEC, out=OUT, evaluate="none", by="tester")).data.release)
"""


def version(folder: Path, path: str, old: str, new: str) -> Path:
    """A copy of the code in which one text of one file is another."""
    shutil.copytree(PACKAGE, folder / "cloister")
    source = (folder / path).read_text(encoding="utf-8")
    assert old in source
    (folder / path).write_text(source.replace(old, new, 1), encoding="utf-8")
    return folder


@pytest.fixture
def run(place, warm_python):
    """Release the clubs, by the code of a folder; killed at a moment."""

    def released(
        deadly: str = "never", code: Path = PACKAGE.parent
    ) -> subprocess.CompletedProcess[str]:
        return warm_python.run(
            RUN,
            place.spec,
            place.folder / "out",
            deadly,
            folder=place.folder,
            environment=os.environ | {"PYTHONPATH": str(code)},
        )

    return released


def journal(place) -> bytes:
    return next((place.home.folder / "journals").rglob("journal.bin")).read_bytes()


def survive(run, place, moments: list[str]) -> None:
    """Kill the same command at each moment, then let it end.

    Check what was charged and answered.
    """
    held = b""
    for moment in moments:
        assert run(moment).returncode == -9, moment
        if (place.home.folder / "journals").exists():
            assert journal(place).startswith(held)
            held = journal(place)
    done = run()
    assert done.returncode == 0, done.stderr[-2000:]
    assert journal(place).startswith(held)
    (release,) = existing_ledger(place.home).releases()
    assert release.id == done.stdout.strip()
    assert f"resumed {release.id}" in done.stderr
    assert [moved.state for moved in release.steps] == [
        State.RESERVED,
        State.SPENT,
        State.CANDIDATE,
    ]
    assert existing_ledger(place.home).budget("clubs", "row").spent == 1
    assert verify_records(place.home, None)[1] == []
    assert verify_records(place.home, str(place.folder / "out"))[1] == []


def test_the_ledger_names_the_command_that_ends_a_killed_release(
    run, place, prefect_server, monkeypatch, capsys
):
    assert run("fit 100").returncode == -9
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
    assert existing_ledger(place.home).budget("clubs", "row").spent == 1


@pytest.mark.slow
def test_killed_while_training_and_after_drawing(run, place):
    survive(run, place, ["fit 100", "sample finished"])


def test_the_next_version_finishes_what_was_charged_if_it_plans_the_same(run, place, tmp_path):
    assert run("fit 100").returncode == -9
    held = journal(place)
    planned = ("cloister/models/kamino/plan.py", "_HISTOGRAMS = 0.25", "_HISTOGRAMS = 0.2")
    refused = run(code=version(tmp_path / "other-plan", *planned))
    assert refused.returncode == 1 and journal(place) == held
    assert f"was begun by version {code_version()}, and this version plans" in refused.stderr
    changed = (
        "cloister/models/kamino/fit.py",
        "from __future__",
        "# the next version\nfrom __future__",
    )
    done = run(code=version(tmp_path / "next", *changed))
    assert done.returncode == 0, done.stderr[-2000:]
    assert journal(place).startswith(held)
    (release,) = existing_ledger(place.home).releases()
    assert release.id == done.stdout.strip() and release.state is State.CANDIDATE
    assert existing_ledger(place.home).budget("clubs", "row").spent == 1
    certificate = yaml.safe_load((place.folder / "out" / "certificate.yaml").read_text())
    assert certificate["software"]["earlier"][code_version()] >= 100
    assert verify_records(place.home, None)[1] == []


@pytest.mark.slow
def test_killed_at_every_step(run, place):
    steps = ["plan", "reserve", "open", "fit", "sample", "evaluate", "certify", "record"]
    moments = [f"{step} {moment}" for step in steps for moment in ("started", "finished")]
    survive(run, place, [*moments[:6], "open 1", *moments[6:-1], "record 1", "record 2"])


@pytest.mark.slow
def test_rows_drawn_after_a_crash_are_those_drawn_before(run, place):
    assert run("sample finished").returncode == -9
    before = pd.read_parquet(next((place.home.folder / "releases").rglob("synthetic.parquet")))
    assert run().returncode == 0
    pd.testing.assert_frame_equal(
        pd.read_parquet(place.folder / "out" / "synthetic.parquet"), before
    )


@pytest.mark.slow
def test_rows_in_another_order_are_the_same_data_to_the_journal(run, place):
    """A database may give the rows of one query in another order each time."""
    assert run("fit 20").returncode == -9
    header, *rows = place.data.read_text().splitlines()
    place.data.write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert run().returncode == 0
    (release,) = existing_ledger(place.home).releases()
    assert existing_ledger(place.home).budget("clubs", "row").spent == 1
    assert release.state is State.CANDIDATE


@pytest.mark.slow
def test_other_data_never_meets_the_journal_of_a_release(run, place):
    assert run("fit 20").returncode == -9
    rows = place.data.read_text().splitlines()
    place.data.write_text("\n".join(rows[:-1]) + "\n")
    refused = run()
    assert refused.returncode == 1
    assert "JournalMismatch" in refused.stderr
    assert existing_ledger(place.home).releases()[0].state is State.SPENT
