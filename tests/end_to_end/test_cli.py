"""The command line on a small dataset: each command, its exit codes, its JSON."""

import contextvars
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run
from cloister.flows.cli.console import progress
from cloister.models.registry import OF_BENCHMARKS
from cloister.tasks.ledger.access import existing_ledger

ALONE = (
    "demo release plan sample answer evaluate verify confirm trail fetch report methods audit "
    "attack benchmark deploy serve page"
)
GROUPS = {
    "constraints": "check",
    "budget": "show grant allow history",
    "dataset": "add list",
    "ledger": "list show export restore",
    "review": "list show approve reject publish withdraw countersign attack",
    "retention": "show run",
    "notify": "add list remove test send",
    "keys": "show make trust revoke rotate",
    "people": "list set token withdraw",
    "rules": "show set",
    "spec": "draft check measure",
}
COMMANDS = [[word] for word in ALONE.split()]
COMMANDS += [[group, word] for group, words in GROUPS.items() for word in words.split()]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_offers_json(command, capsys):
    assert run([*command, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"cloister {' '.join(command)}" in said.split("Example:")[1]
    assert "--json" in said


def test_every_command_is_listed_above(capsys):
    run(["--help"])
    listed = capsys.readouterr().out.split("Commands:")[1]
    assert {line.split()[0] for line in listed.splitlines() if line.strip()} == {
        command[0] for command in COMMANDS
    }


def test_help_loads_no_heavy_library():
    heavy = "{'torch', 'pandas', 'prefect', 'mlflow', 'dvc', 'opendp', 'scipy', 'numba'}"
    program = (
        "import sys; from cloister.flows.cli.app import run; run(['--help']); "
        f"assert not {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_progress_off_a_terminal_is_text_and_json_if_asked(capsys):
    def written(*options):
        run([*options, "methods", "--json"])
        with progress() as lines:
            lines.start("train")
            lines.advance("train", 3, 15)
        return capsys.readouterr().err.splitlines()

    lines = contextvars.copy_context().run(written)
    assert [line.partition(" ")[2] for line in lines] == ["train started", "train 3 of 15"]
    events = contextvars.copy_context().run(written, "--log", "json")
    assert [json.loads(event)["state"] for event in events] == ["started", "running"]


def test_evaluate_compares_files(released, own, cloister):
    files = ("--data", released.place.data, "--synthetic", released.out / "synthetic.parquet")
    figures = cloister("evaluate", released.place.spec, *files, "--out", own / "figures")
    assert figures["internal"] is True
    assert figures["metrics"]["violations.hard.largest_percent"] == 0
    assert (own / "figures" / "evaluation.json").exists()


def test_evaluate_warns_of_rows_that_receivers_will_find_broken(released, own, cloister, capsys):
    files = ["--data", released.place.data, "--synthetic", own / "out" / "synthetic.parquet"]
    words = ["evaluate", released.place.spec, *files, "--level", "none"]
    assert cloister(*words)["warnings"] == []
    frame = pd.read_parquet(files[-1])
    frame.assign(age=frame["age"].astype("float64")).to_parquet(files[-1])
    assert run([*map(str, words)]) == 0
    assert "published schema: column 'age'" in " ".join(capsys.readouterr().err.split())


def test_evaluate_refuses_a_target_that_there_is_not(released, own, capsys):
    files = ["--data", released.place.data, "--synthetic", released.out / "synthetic.parquet"]
    words = ["evaluate", released.place.spec, *files, "--level", "full", "--target", "nothing"]
    assert run([*map(str, words)]) == 2
    assert "no target 'nothing'" in capsys.readouterr().err


@pytest.mark.slow
def test_evaluate_trains_the_panel_on_the_targets_that_are_named(released, own, cloister):
    files = ("--data", released.place.data, "--synthetic", released.out / "synthetic.parquet")
    words = ("evaluate", released.place.spec, *files, "--level", "full", "--target", "age")
    found = cloister(*words, "--panel", "twelve")
    assert list(found["learning"]["targets"]) == list(found["truth"]["targets"]) == ["age"]
    assert len(found["learning"]["classifiers"]) == 12
    assert 0 <= cloister(*words, "--held-out", released.place.data)["membership"]["auc"] <= 1


def test_constraints_check_counts_pairs_and_leaves_with_one(place, cloister, capsys):
    counted = cloister("constraints", "check", place.spec, "--data", place.data)
    assert [found["violations"] for found in counted] == [0, 0]
    assert len(cloister("constraints", "check", place.spec)) == 2  # of the spec's source
    lines = place.data.read_text().splitlines()
    place.data.write_text("\n".join([*lines, "north,S,19,5,True"]) + "\n")
    capsys.readouterr()
    assert run(["constraints", "check", str(place.spec), "--data", str(place.data), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    north = sum(line.startswith("north") for line in lines)
    assert [report["violations"] for report in found] == [north, 1]


def test_a_draft_is_refused_until_it_is_declared_and_confirmed(place, cloister, capsys):
    draft = place.folder / "draft.yaml"
    cloister("spec", "draft", place.data, "--out", draft)
    capsys.readouterr()
    assert run(["spec", "check", str(draft)]) == 2
    said = capsys.readouterr().err
    assert "has 3 problems" in said
    for words in ("names of columns", "types of attributes", "'age'", "data-derived", "number of"):
        assert words in said
    declared = draft.read_text().replace("data-derived", "form")
    declared = declared.replace("{measured: true}", "{public: 2000}")
    draft.write_text(declared)
    for command in ("check", "release"):
        order = ["spec", "check", str(draft)] if command == "check" else ["release", str(draft)]
        assert run(order) == 2
        assert "unconfirmed" in capsys.readouterr().err
    draft.write_text(
        "".join(line for line in declared.splitlines(True) if not line.startswith("unconfirmed"))
    )
    assert cloister("spec", "check", draft)["attributes"] == 5
    assert yaml.safe_load(declared)["attributes"]


def test_looking_makes_no_ledger(place, cloister, capsys):
    names = [method["name"] for method in cloister("methods")]
    assert {"kamino", "kamino-paper", "mixture", "independent"} <= set(names)
    assert OF_BENCHMARKS.isdisjoint(names)
    assert run(["relase"]) == 2
    assert "relase" in capsys.readouterr().err
    assert cloister("ledger", "list") == []
    assert cloister("budget", "show") == []
    assert existing_ledger(place.home) is None


@pytest.mark.slow
def test_benchmarks_are_those_of_the_checkout_though_a_dependency_has_some_too(tmp_path):
    # as a shell starts it: neither the folder nor the checkout comes first on the path
    command = [str(Path(sys.executable).with_name("cloister")), "benchmark", "missing.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "missing.yaml cannot be read" in " ".join(ended.stderr.split())


INTERRUPTED_CLOSE = """
import sqlalchemy as sa
from cloister.flows.cli.app import main

def interrupted(connection):
    raise KeyboardInterrupt

try:
    main(["--version"])
except SystemExit:
    pass
engine = sa.create_engine("sqlite://", poolclass=sa.NullPool)
connection = engine.connect()
engine.dialect.do_close = interrupted
try:
    connection.close()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_while_a_database_closes_shows_no_traceback(tmp_path):
    words = [sys.executable, "-c", INTERRUPTED_CLOSE]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.endswith("interrupted\n")
    assert done.stderr == ""
