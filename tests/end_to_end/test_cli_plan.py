"""What `cloister plan` and `cloister spec check` say before anything is read or charged."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from panel import panel

from cloister.flows.cli.app import run


def test_a_plan_loads_nothing_that_only_rows_or_a_fit_need():
    heavy = (
        "{'torch', 'pandas', 'pyarrow', 'numba', 'sklearn', 'xgboost', 'scipy.stats', 'pandera', "
        "'scipy.optimize', 'sqlalchemy', 'matplotlib', 'prefect', 'mlflow', 'dvc'}"
    )
    spec = Path(__file__).parents[2] / "data" / "specs" / "demo.yaml"
    methods = ("auto", "kamino", "dpview", "bayes")
    words = ["plan", str(spec), "--device", "cpu", "--json", "--method"]
    commands = [["spec", "check", str(spec)], *([*words, method] for method in methods)]
    program = (
        f"import sys; from cloister.flows.cli.app import run; "
        f"assert not any([run(command) for command in {commands}]); "
        f"assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_plan_touches_no_data_and_makes_no_home(place, cloister):
    place.data.unlink()
    made = cloister("plan", place.spec, "--epsilon", "1/2")
    assert made["accounted_epsilon"] <= 0.5
    assert {stage["name"] for stage in made["stages"]} >= {"histograms", "training"}
    assert not place.home.folder.exists()


def test_a_plan_names_what_to_declare_more_coarsely_and_what_that_gains(tmp_path, cloister, capsys):
    spec = panel(2_000, 50).write(tmp_path)
    planned = cloister("plan", spec, "--epsilon", "1")
    (change,) = (each for each in planned["changes"] if each["write"] == "bins: 16")
    assert change["before"] == planned["expected_two_way_error"] > change["after"]
    assert run(["plan", str(spec), "--epsilon", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Changes of the spec that would gain" in shown
    assert "bins: 16" in shown


def write_wide(folder, rows):
    """The spec of a table of 294 columns."""
    lines = [f"  c{at:03}: {{type: boolean}}" for at in range(294)]
    budget = "{epsilon: 9, delta: 1e-6, per: year}"
    privacy = f"{{unit: row, relation: add_remove, rows: {{public: {rows}}}, budget: {budget}}}"
    text = f"name: wide\nsource: {{path: w.csv}}\nprivacy: {privacy}\nattributes:\n"
    release = "release: {method: independent, epsilon: 1, delta: 1e-7}"
    (folder / "wide.yaml").write_text(text + "\n".join([*lines, release]))


def test_a_plan_warns_of_noise_that_drowns_counts_and_shows_the_ends_of_long_lists(
    tmp_path, cloister, capsys
):
    for rows, drowned in ((700, True), (100_000, False)):
        write_wide(tmp_path, rows)
        warnings = cloister("plan", tmp_path / "wide.yaml")["warnings"]
        assert any(f"rows beside {rows:,} rows" in sentence for sentence in warnings) == drowned
    assert run(["plan", str(tmp_path / "wide.yaml")]) == 0
    assert "c011, ... (278 more; --all) ..., c290" in " ".join(capsys.readouterr().out.split())
    assert run(["plan", str(tmp_path / "wide.yaml"), "--all"]) == 0
    assert "c150, c151" in " ".join(capsys.readouterr().out.split())


STAYS = """
name: stays
source: {path: stays.csv}
privacy: {unit: row, relation: add_remove, rows: {public: 8000},
  budget: {epsilon: 9, delta: 1e-6, per: ever}}
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
def test_a_plan_warns_of_differences_it_does_not_model(tmp_path, cloister, method, bound, reason):
    text = STAYS if bound else re.sub(r"  - {name: (late|early).*\n", "", STAYS)
    (tmp_path / "stays.yaml").write_text(text)
    warnings = cloister("plan", tmp_path / "stays.yaml", "--method", method)["warnings"]
    told = "'order' orders admitted and discharged"
    said = [sentence for sentence in warnings if told in sentence]
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
privacy: {unit: {table: members}, relation: add_remove, rows: {public: 100},
  budget: {epsilon: 9, delta: 0, per: year}}
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
release:
  method: relational
  epsilon: 4
  delta: 0
"""


@pytest.mark.parametrize("command", ["spec check", "plan"])
@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (
            LOANS.replace("members.joined", "books.bought"),
            "'before' is across .*: drop 'before', or",
        ),
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


def test_plan_is_a_table_for_people(place, capsys):
    assert run(["plan", str(place.spec)]) == 0
    said = capsys.readouterr().out
    assert "all together" in said
    assert "of processor time, with quick evaluation" in said
    assert run(["plan", str(place.spec), "--method", "mixture"]) == 0
    assert "what only 4 or more columns together show" in capsys.readouterr().out


@pytest.mark.parametrize(("rows", "hidden"), [(500, True), (200_000, False)])
def test_a_plan_names_the_rule_that_noise_hides_most(cloister, tmp_path, rows, hidden):
    numbers = {"type": "integer", "min": 0, "max": 39}
    spec = {
        "name": "shops",
        "source": {"path": "shops.csv"},
        "privacy": {
            "unit": "row",
            "relation": "add_remove",
            "rows": {"public": rows},
            "budget": {"epsilon": 1, "delta": 1e-6, "per": "ever"},
        },
        "attributes": {
            "shop": numbers,
            "town": {"type": "categorical", "values": ["a", "b", "c"]},
            "open": {"type": "boolean"},
            "late": {"type": "boolean"},
        },
        "constraints": [
            {"name": "in one town", "fd": "shop -> town"},
            {"name": "late if open", "fd": "open -> late"},
        ],
        "release": {"epsilon": 1, "delta": 1e-6, "method": "mixture"},
    }
    (tmp_path / "shops.yaml").write_text(yaml.safe_dump(spec))
    warnings = cloister("plan", tmp_path / "shops.yaml")["warnings"]
    named = [sentence for sentence in warnings if "costs most of all rules" in sentence]
    assert len(named) == hidden
    if hidden:
        assert named[0].startswith("'in one town' costs most")
        assert " rows, or epsilon " in named[0]
