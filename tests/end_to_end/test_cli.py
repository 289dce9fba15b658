"""The command line on a small dataset: each command, its exit codes, its JSON."""

import contextvars
import json
import re
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

COMMANDS = [
    ["demo"],
    ["release"],
    ["plan"],
    ["sample"],
    ["answer"],
    ["evaluate"],
    ["constraints", "check"],
    ["budget", "show"],
    ["dataset", "add"],
    ["dataset", "list"],
    ["budget", "grant"],
    ["budget", "allow"],
    ["budget", "history"],
    ["ledger", "list"],
    ["ledger", "show"],
    ["ledger", "export"],
    ["ledger", "restore"],
    ["review", "list"],
    ["review", "show"],
    ["review", "approve"],
    ["review", "reject"],
    ["review", "publish"],
    ["review", "withdraw"],
    ["review", "countersign"],
    ["retention", "show"],
    ["retention", "run"],
    *(["notify", word] for word in ("add", "list", "remove", "test", "send")),
    ["verify"],
    ["keys", "show"],
    ["keys", "make"],
    ["keys", "trust"],
    ["keys", "revoke"],
    ["keys", "rotate"],
    ["people", "list"],
    ["people", "set"],
    ["people", "token"],
    ["people", "withdraw"],
    ["rules", "show"],
    ["rules", "set"],
    ["confirm"],
    ["retention", "show"],
    ["retention", "run"],
    ["trail"],
    ["fetch"],
    ["report"],
    ["spec", "draft"],
    ["spec", "check"],
    ["methods"],
    ["benchmark"],
    ["deploy"],
    ["serve"],
    ["page"],
]


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


def test_a_plan_loads_nothing_that_only_rows_or_a_fit_need():
    heavy = (
        "{'torch', 'pandas', 'pyarrow', 'numba', 'sklearn', 'xgboost', 'scipy.stats', 'pandera', "
        "'scipy.optimize', 'sqlalchemy', 'matplotlib', 'prefect', 'mlflow', 'dvc'}"
    )
    spec = Path(__file__).parents[2] / "data" / "specs" / "demo.yaml"
    methods = ("auto", "kamino", "kamino-paper", "dpview", "independent", "bayes")
    commands = [["spec", "check", str(spec)]] + [
        ["plan", str(spec), "--method", method, "--device", "cpu", "--json"] for method in methods
    ]
    program = (
        f"import sys; from cloister.flows.cli.app import run; "
        f"assert not any([run(command) for command in {commands}]); "
        f"assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_unknown_command_leaves_with_two(capsys):
    assert run(["relase"]) == 2
    assert "relase" in capsys.readouterr().err


def test_plan_touches_no_data_and_makes_no_home(place, cloister):
    place.data.unlink()
    made = cloister("plan", place.spec, "--epsilon", "1/2")
    assert made["accounted_epsilon"] <= 0.5
    assert {stage["name"] for stage in made["stages"]} >= {"histograms", "training"}
    assert not place.home.folder.exists()


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


def write_wide(folder, rows):
    """The spec of a table of 294 columns."""
    lines = [f"  c{at:03}: {{type: boolean}}" for at in range(294)]
    budget = "{epsilon: 9, delta: 1e-6, per: year}"
    privacy = f"{{unit: row, relation: add_remove, rows: {{public: {rows}}}, budget: {budget}}}"
    text = f"name: wide\nsource: {{path: w.csv}}\nprivacy: {privacy}\nattributes:\n"
    release = "release: {method: independent, epsilon: 1, delta: 1e-7}"
    (folder / "wide.yaml").write_text(text + "\n".join([*lines, release]))


@pytest.mark.parametrize(("rows", "drowned"), [(100_000, False), (700, True)])
def test_a_plan_warns_of_noise_that_drowns_counts(tmp_path, cloister, rows, drowned):
    write_wide(tmp_path, rows)
    warnings = cloister("plan", tmp_path / "wide.yaml")["warnings"]
    assert any(f"rows beside {rows:,} rows" in sentence for sentence in warnings) == drowned


STAYS = """
name: stays
source: {path: stays.csv}
privacy:
  unit: row
  relation: add_remove
  rows: {public: 8000}
  budget: {epsilon: 9, delta: 1e-6, per: ever}
attributes:
  admitted: {type: date, min: 2020-01-01, max: 2020-12-31}
  discharged: {type: date, min: 2020-01-01, max: 2021-06-30}
  ward: {type: categorical, values: [a, b]}
constraints:
  - {name: order, deny: "t.admitted > t.discharged"}
  - {name: late, deny: "t.discharged < '2020-01-05' and t.ward = 'a'"}
  - {name: early, deny: "t.admitted > '2020-12-01' and t.ward = 'b'"}
release: {epsilon: 1, delta: 1e-7}
"""


@pytest.mark.parametrize(
    ("method", "bound", "reason"),
    [
        ("mixture", True, "other constraints hold for the number"),
        ("mixture", False, None),
        ("kamino", False, None),
        ("kamino-paper", False, "method 'kamino-paper' models numbers as they are"),
    ],
)
def test_a_plan_warns_of_differences_that_are_not_modelled(
    tmp_path, cloister, method, bound, reason
):
    text = STAYS if bound else re.sub(r"  - {name: (late|early).*\n", "", STAYS)
    (tmp_path / "stays.yaml").write_text(text)
    warnings = cloister("plan", tmp_path / "stays.yaml", "--method", method)["warnings"]
    said = [
        sentence for sentence in warnings if "'order' orders admitted and discharged" in sentence
    ]
    assert len(said) == (reason is not None)
    assert all(reason in sentence for sentence in said)


STAFF = """
name: staff
privacy:
  {unit: row, relation: add_remove, rows: {public: 5000}, budget: {epsilon: 9, delta: 0, per: ever}}
tables:
  staff:
    source: {path: staff.csv}
    key: id
    references: {boss: {table: staff, max_rows: 9}}
    attributes:
      id: {type: text, pattern: "{1..99999}"}
      boss: {type: text, pattern: "{1..99999}", nullable: true}
      pay: {type: integer, min: 0, max: 9}
constraints: [{name: top, deny: "staff.pay > staff.boss.pay"}]
release: {method: relational, epsilon: 4, delta: 0}
"""


def test_a_plan_warns_of_references_that_a_rule_will_drop(tmp_path, cloister):
    (tmp_path / "staff.yaml").write_text(STAFF)
    (warning,) = cloister("plan", tmp_path / "staff.yaml")["warnings"]
    assert "'top' is across staff.boss, of a table to itself" in warning


LOANS = """
name: library
privacy:
  unit: {table: members}
  relation: add_remove
  rows: {public: 100}
  budget: {epsilon: 9, delta: 0, per: year}
tables:
  members:
    source: {path: members.csv}
    key: id
    attributes: {id: {type: text, pattern: "M{001..999}"}, joined: {type: integer, min: 0, max: 9}}
  books:
    source: {path: books.csv}
    rows: {public: 50}
    key: id
    attributes: {id: {type: text, pattern: "B{01..99}"}, bought: {type: integer, min: 0, max: 9}}
  loans:
    source: {path: loans.csv}
    rows: {public: 200}
    references: {member: {table: members, max_rows: 4}, book: {table: books, max_rows: 9}}
    constraints: [{name: once, key: [member, book]}]
    attributes:
      member: {type: text, pattern: "M{001..999}"}
      book: {type: text, pattern: "B{01..99}"}
      lent: {type: integer, min: 0, max: 9}
constraints: [{name: before, deny: "loans.lent < members.joined"}]
release: {method: relational, epsilon: 4, delta: 0}
"""


@pytest.mark.parametrize("command", ["spec check", "plan"])
@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (LOANS, r"'before' is across 'loans.member'.*key \(member, book\).*: drop 'before', or"),
        (LOANS.replace("relational", "mixture"), "of one table"),
    ],
)
def test_a_check_refuses_what_a_plan_refuses(tmp_path, capsys, command, spec, refusal):
    (tmp_path / "loans.yaml").write_text(spec)
    assert run([*command.split(), str(tmp_path / "loans.yaml")]) == 2
    assert re.search(refusal, capsys.readouterr().err)


def test_a_price_above_the_whole_budget_is_said_before_a_release(place, cloister):
    assert not cloister("plan", place.spec, "--epsilon", "4")["warnings"]
    (said,) = cloister("plan", place.spec, "--epsilon", "4.5")["warnings"]
    assert said.startswith("epsilon 4.5 ")
    assert "budget, epsilon 4 at delta 1e-5 per year: a release will be refused" in said
    assert not cloister("spec", "check", place.spec)["warnings"]
    place.edit("epsilon: 1, delta: 1e-6", "epsilon: 1, delta: 1e-4")
    (said,) = cloister("spec", "check", place.spec)["warnings"]
    assert "at delta 0.0001 is above the declared budget" in said


def test_a_plan_shows_the_ends_of_long_lists(tmp_path, capsys):
    write_wide(tmp_path, 100_000)
    assert run(["plan", str(tmp_path / "wide.yaml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "c011, ... (278 more; --all) ..., c290" in shown
    assert run(["plan", str(tmp_path / "wide.yaml"), "--all"]) == 0
    assert "c150, c151" in " ".join(capsys.readouterr().out.split())


def test_plan_is_a_table_for_people(place, capsys):
    assert run(["plan", str(place.spec)]) == 0
    said = capsys.readouterr().out
    assert "all together" in said
    assert "of processor time, with quick evaluation" in said
    assert run(["plan", str(place.spec), "--method", "mixture"]) == 0
    assert "what only 4 or more columns together show" in capsys.readouterr().out


def test_evaluate_compares_files(released, own, cloister):
    figures = cloister(
        "evaluate",
        released.place.spec,
        "--data",
        released.place.data,
        "--synthetic",
        released.out / "synthetic.parquet",
        "--out",
        own / "figures",
    )
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
    files = [
        "--data",
        released.place.data,
        "--synthetic",
        released.out / "synthetic.parquet",
        "--level",
        "full",
    ]
    found = cloister(
        "evaluate", released.place.spec, *files, "--panel", "twelve", "--target", "age"
    )
    assert list(found["learning"]["targets"]) == list(found["truth"]["targets"]) == ["age"]
    assert len(found["learning"]["classifiers"]) == 12
    attacked = cloister(
        "evaluate",
        released.place.spec,
        *files,
        "--target",
        "age",
        "--held-out",
        released.place.data,
    )
    assert 0 <= attacked["membership"]["auc"] <= 1


def test_constraints_check_counts_pairs_and_leaves_with_one(place, cloister, capsys):
    assert [
        found["violations"]
        for found in cloister("constraints", "check", place.spec, "--data", place.data)
    ] == [
        0,
        0,
    ]
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
    for words in (
        "unconfirmed: names of columns",
        "types of attributes",
        "'age'",
        "data-derived",
        "number of rows",
    ):
        assert words in said
    declared = (
        draft.read_text()
        .replace("data-derived", "form")
        .replace("{measured: true}", "{public: 2000}")
    )
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


def test_methods_are_listed(cloister):
    names = [method["name"] for method in cloister("methods")]
    assert {"kamino", "kamino-paper", "mixture", "independent"} <= set(names)
    assert OF_BENCHMARKS.isdisjoint(names)


def test_no_ledger_is_made_by_looking(place, cloister):
    assert cloister("ledger", "list") == []
    assert cloister("budget", "show") == []
    assert existing_ledger(place.home) is None


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
