"""Peers in a benchmark: a tiny library in its own environment, and all the ways it can fail."""

import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.benchmarks.config import load_benchmark
from cloister.benchmarks.peer_runs.coding import code_table, encode_table
from cloister.benchmarks.peer_runs.environments import environment, paragraphs
from cloister.errors import CloisterError
from cloister.flows.cli.app import run
from cloister.models.task import Budget
from cloister.schema.partition import declared_cells
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import releases


def late_imports():
    global MlflowClient, home_of, markers, peer_steps
    from mlflow import MlflowClient

    from cloister.benchmarks.pages.markdown import markers
    from cloister.benchmarks.peer_runs import peer_steps
    from cloister.benchmarks.runs import home_of


SHUFFLES = """
import numpy as np


def synthesize(codes, sizes, job):
    rng = np.random.default_rng(job["seed"])
    drawn = np.stack([rng.choice(column, job["rows"]) for column in codes.T], axis=1)
    method = job["method"]
    if method == "crash":
        raise KeyError("a message that may quote a row")
    if method == "hang":
        import subprocess, time
        subprocess.Popen(["sleep", "600"])
        time.sleep(600)
    if method == "toil":
        while True:
            drawn.sum()
    if method == "short":
        return drawn[:-1]
    if method == "holes":
        return np.where(drawn == 0, np.nan, drawn)
    if method == "outside":
        return drawn + max(sizes)
    if method == "words":
        return drawn.astype(object)
    return drawn
"""
FAILURES = {
    "crash": "ended with code 1: KeyError",
    "hang": "not done in 2 s",
    "toil": "not done in 2 CPU s",
    "short": "it wrote a table of shape (1999, 5); (2000, 5) is wanted",
    "holes": "it left values missing",
    "outside": "it wrote codes outside the public domains",
    "words": "ended with code 1: ValueError",
}
LIMITS = {"hang": 0.5, "toil": 2}


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    """A Python with numpy for the tiny library: this one, in place of one that pip would make."""
    return lambda requirements, home, python: Path(sys.executable)


@pytest.fixture
def tiny(place, monkeypatch, environments):
    monkeypatch.setattr(peer_steps, "environment", environments)
    monkeypatch.chdir(place.folder)
    (place.folder / "tiny.py").write_text(SHUFFLES)
    (place.folder / "tiny.txt").write_text("# nothing\n")
    return place


def config(place, methods, name="sides", **changed):
    clubs = {"spec": str(place.spec), "data": str(place.data), "public": "made up"}
    about = {"name": "all", "title": "Side by side", "datasets": ["clubs"], "epsilons": [1]}
    methods = {
        f"tiny-{m}": {"script": "tiny.py", "method": m, "seconds": LIMITS.get(m, 120)}
        for m in methods
    }
    content = {
        "name": name,
        "evaluate": "none",
        "datasets": {"clubs": clubs},
        "peers": methods,
        "experiments": [about | {"methods": [*methods], "variants": ["declared", "free"]}],
        "variants": {"free": {"constraints": []}},
    }
    path = place.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content | changed), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_peer_stands_beside_releases_without_a_charge_and_is_run_once(
    prefect_server, tiny, capsys
):
    page = tiny.folder / "page.md"
    page.write_text("{}\n{}\n".format(*markers("sides")))
    path = config(tiny, ["shuffle", "crash"], evaluate="quick")
    command = ["benchmark", str(path), "--markdown", str(page), "--json"]
    assert run(command) == 0  # that a peer crashes is a finding
    said = json.loads(capsys.readouterr().out)
    assert (said["failed"], said["peers failed"]) == (0, 1)
    shuffle, crash = said["results"]
    assert shuffle["release"] == ""
    assert shuffle["cost"]["memory"] > 2**20
    assert 0 < shuffle["evaluation"]["metrics"]["marginals.1_way.half_l1"] < 0.1
    assert (crash["error"], crash["evaluation"]) == (FAILURES["crash"], None)
    home = Home.current()
    own = home_of(load_benchmark(path), home)
    assert releases(own, None) == []
    rows = pd.read_csv(own.folder / "results" / "results.csv")
    assert set(rows["release"]) == {"not a Cloister release"}
    text = page.read_text(encoding="utf-8")
    assert "| clubs | tiny-shuffle, ε 1 |" in text
    assert f"| clubs | tiny-crash, ε 1 | failed: {FAILURES['crash']} |" in text
    assert "no Cloister release" in text
    assert "may quote a row" not in text + json.dumps(said)
    tags = MlflowClient(home.tracking).get_run(said["tracking run"]).data.tags
    assert tags["peer.tiny-shuffle"] == "not a Cloister release"
    assert run(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["done before"], again["results"]) == (2, said["results"])


@pytest.mark.slow
@pytest.mark.parametrize(("method", "told"), FAILURES.items())
def test_every_failure_of_a_peer_is_a_finding_with_its_reason(tiny, method, told):
    declared = load_benchmark(config(tiny, [method]))
    (combination,) = declared.all_combinations()
    home = Home.current()
    done = peer_steps.run(combination, home_of(declared, home), home)
    assert (done.error, done.finding, done.figures()) == (told, True, {})
    assert peer_steps.finished_run(combination, home) == done
    assert not list((home.folder / "peers").rglob("codes.npy"))
    (tiny.folder / "tiny.py").write_text(SHUFFLES + "\n")
    assert peer_steps.finished_run(combination, home) is None


@pytest.mark.slow
def test_a_peer_runs_on_some_rows_of_a_table(tiny):
    home = Home.current()
    (combination,) = load_benchmark(config(tiny, ["shuffle"])).all_combinations()
    table = encode_table(tiny.spec, tiny.data, "declared")
    some = code_table(table.decode(table.codes[:100], seed=3), 40, "declared")
    job = peer_steps.job_on(some, combination.peer, Budget(1, Fraction(1, 10**6)), 1, home)
    assert not peer_steps.synthesize(job, home).error
    drawn = job.synthetic()
    assert (drawn.rows, drawn.domain) == (40, table.domain)
    known = [set(column) for column in table.codes[:100].T]
    again = code_table(drawn, 40, "declared").codes
    assert all(set(column) <= values for column, values in zip(again.T, known, strict=True))


@pytest.mark.slow
def test_a_peer_that_is_killed_from_outside_is_tried_again(tiny):
    home = Home.current()
    (combination,) = load_benchmark(config(tiny, ["shuffle"])).all_combinations()
    (tiny.folder / "tiny.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = peer_steps.run(combination, home, home)
    assert "killed from outside" in done.error and not done.finding
    assert peer_steps.finished_run(combination, home) is None


def test_what_stops_an_environment_is_told_and_tried_again(tiny, monkeypatch):
    def refused(requirements, home, python):
        raise CloisterError("cannot be installed")

    monkeypatch.setattr(peer_steps, "environment", refused)
    home = Home.current()
    (combination,) = load_benchmark(config(tiny, ["shuffle"])).all_combinations()
    done = peer_steps.run(combination, home, home)
    assert (done.error, done.finding) == ("cannot be installed", False)
    assert peer_steps.finished_run(combination, home) is None


@pytest.mark.slow
def test_an_environment_is_made_once_for_its_requirements(place):
    requirements = place.folder / "none.txt"
    requirements.write_text("# nothing to install\n")
    python = environment(requirements, place.home)
    assert python.is_file()
    made = python.stat().st_ctime_ns
    assert environment(requirements, place.home).stat().st_ctime_ns == made
    requirements.write_text("no-such-distribution-of-anyone==1\n\n")
    assert list(paragraphs("# a\nb==1\n\n# c\n\nd==1\ne==2")) == [["b==1"], ["d==1", "e==2"]]


@pytest.mark.parametrize(
    ("line", "python", "said"),
    [
        ("$CLOISTER_NO_CHECKOUT\n", sys.executable, "CLOISTER_NO_CHECKOUT is not set"),
        ("# nothing to install\n", "python-of-nobody", "needs python-of-nobody"),
    ],
)
def test_what_an_environment_lacks_is_said_before_any_is_made(place, line, python, said):
    requirements = place.folder / "checkout.txt"
    requirements.write_text(line)
    with pytest.raises(CloisterError, match=said):
        environment(requirements, place.home, python)
    assert not list((place.home.folder / "environments").glob("checkout-*/bin"))


def test_peers_get_public_cells_and_values_return_within_them(place):
    table = encode_table(place.spec, place.data, "declared")
    cells = [declared_cells(table.domain[name]) for name in table.domain.modelled]
    assert table.sizes == [c.size for c in cells]
    back = table.decode(table.codes, seed=3)
    for at, column in enumerate(cells):
        np.testing.assert_array_equal(column.index(back.codes[column.name]), table.codes[:, at])
    missing = back.codes["income"][table.codes[:, 3] == table.sizes[3] - 1]
    assert missing.max() == table.domain["income"].null_code
    coarse = encode_table(place.spec, place.data, "read")
    # special values and the missing one stay cells of their own
    assert coarse.sizes == [3, 3, 16, 16 + 1 + 1, 2]
    assert coarse.digest != table.digest


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"peers": {"cloister": {"script": "tiny.py", "method": "a"}}}, "name of a method"),
        ({"peers": {"mixture": {"script": "tiny.py", "method": "a"}}}, "name of a method"),
        ({"peers": {"tiny-a": {"script": "absent.py", "method": "a"}}}, "absent.py"),
        ({"peers": {"tiny-a": {"script": "tiny.sh", "method": "a"}}}, "script"),
    ],
)
def test_peers_that_cannot_be_used_are_refused_before_anything_is_made(tiny, capsys, changed, told):
    assert run(["benchmark", str(config(tiny, ["a"], **changed))]) == 2
    assert told in capsys.readouterr().err
    assert not tiny.home.folder.exists()


@pytest.mark.parametrize(
    ("unit", "changed", "told"),
    [
        ("unit: row", {"datasets": {"clubs": {}}}, "public: REASON"),
        ("unit: {key: age, max_rows: 3}", {}, "error"),
    ],
)
def test_peers_see_no_table_that_is_not_public_and_none_of_persons(
    tiny, capsys, unit, changed, told
):
    tiny.edit("unit: row", unit)
    if changed:
        changed["datasets"]["clubs"] = {"spec": str(tiny.spec), "data": str(tiny.data)}
    assert run(["benchmark", str(config(tiny, ["a"], **changed))]) == 2
    assert told in capsys.readouterr().err
    assert not tiny.home.folder.exists()
