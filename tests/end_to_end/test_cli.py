"""The command line on a small dataset: each command, its exit codes, its JSON."""

import io
import json
import shutil
import subprocess
import sys

import pandas as pd
import pytest
import yaml

import models.sampling.balanced
import models.sampling.resumable
from flows.cli.app import run
from tasks.ledger.queries import existing_ledger

COMMANDS = [
    ["demo"],
    ["release"],
    ["plan"],
    ["sample"],
    ["evaluate"],
    ["constraints", "check"],
    ["budget", "show"],
    ["budget", "grant"],
    ["ledger", "list"],
    ["ledger", "show"],
    ["ledger", "export"],
    ["review", "list"],
    ["review", "approve"],
    ["review", "reject"],
    ["review", "publish"],
    ["review", "withdraw"],
    ["verify"],
    ["fetch"],
    ["report"],
    ["spec", "draft"],
    ["spec", "check"],
    ["methods"],
    ["benchmark"],
    ["deploy"],
    ["serve"],
]


@pytest.fixture
def cloister(capsys):
    """Run a command; its JSON."""

    def command(*words: object):
        capsys.readouterr()
        code = run([*map(str, words), "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    return command


@pytest.fixture
def own(released, tmp_path, monkeypatch):
    """A copy of the release that a test may change."""
    home = shutil.copytree(released.place.home.folder, tmp_path / "home")
    uri = f"sqlite:///{released.place.home.folder / 'mlflow' / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("CLOISTER_HOME", str(home))
    shutil.copytree(released.out, tmp_path / "out")
    return tmp_path


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
        "import sys; from flows.cli.app import run; run(['--help']); "
        f"assert not {heavy} & set(sys.modules)"
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


def test_plan_is_a_table_for_people(place, capsys):
    assert run(["plan", str(place.spec)]) == 0
    said = capsys.readouterr().out
    assert "all together" in said
    assert "on two cores" in said


def test_release_reports_spend_violations_and_files(released, own, cloister):
    shown = cloister("ledger", "show", released.id)
    assert [step["state"] for step in shown["steps"]] == ["reserved", "spent", "candidate"]
    assert shown["epsilon"] == "1/1"


def test_ledger_list_and_budget(released, own, cloister):
    assert [release["release"] for release in cloister("ledger", "list", "clubs")] == [released.id]
    (budget,) = cloister("budget", "show", "clubs")
    assert (budget["granted"], budget["spent"], budget["left"]) == ("4", "1", "3")


def test_grant_replaces_the_budget(own, cloister):
    granted = cloister(
        "budget",
        "grant",
        "clubs",
        "--epsilon",
        "9/2",
        "--delta",
        "1e-5",
        "--per",
        "year",
        "--reason",
        "policy",
    )
    assert (granted["granted"], granted["left"]) == ("4.5", "3.5")


def test_review_moves_a_release_and_rows_are_drawn_from_approved_ones_only(
    released, own, cloister, capsys
):
    more = own / "more.parquet"
    draw = ["sample", released.id, "--rows", "321", "--out", str(more), "--seed", "5"]
    assert run(draw) == 2
    assert "approved" in capsys.readouterr().err
    assert [waiting["release"] for waiting in cloister("review", "list")] == [released.id]
    approved = cloister(
        "review", "approve", released.id, "--by", "A. Officer", "--reason", "read it"
    )
    assert approved["state"] == "approved"
    assert cloister(*draw)["rows"] == 321
    assert len(pd.read_parquet(more)) == 321
    assert run(draw) == 2  # never overwritten
    text = own / "more.csv"
    cloister("sample", released.id, "--rows", "321", "--out", text, "--seed", "5")
    pd.testing.assert_frame_equal(pd.read_csv(text), pd.read_parquet(more), check_dtype=False)
    assert float(cloister("budget", "show", "clubs")[0]["spent"]) == 1
    cloister("review", "publish", released.id, "--by", "A. Officer", "--reason", "handed on")
    cloister("review", "withdraw", released.id, "--by", "A. Officer", "--reason", "superseded")
    assert run(["review", "approve", released.id, "--reason", "again"]) == 2


@pytest.fixture
def approved(released, own, cloister):
    cloister("review", "approve", released.id, "--by", "A. Officer", "--reason", "read it")
    return released.id


def test_rows_are_drawn_under_conditions(approved, own, cloister):
    out = own / "conditioned.csv"
    cloister(
        "sample",
        approved,
        "--rows",
        "200",
        "--out",
        out,
        "--where",
        "home region=north",
        "--where",
        "income=",
    )
    rows = pd.read_csv(out)
    assert len(rows) == 200
    assert set(rows["home region"]) == {"north"}
    assert rows["income"].isna().all()
    assert rows["capital"].nunique() == 1


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (["north"], "COLUMN=VALUE"),
        (["nowhere=1"], "'nowhere'"),
        (["age=17"], "'age'"),
        (["age=20", "age=30"], "two conditions"),
    ],
)
def test_conditions_that_cannot_be_met_are_refused(approved, own, capsys, where, said):
    options = [part for text in where for part in ("--where", text)]
    assert run(["sample", approved, "--rows", "5", "--out", str(own / "none.csv"), *options]) != 0
    assert said in capsys.readouterr().err
    assert not (own / "none.csv").exists()


def test_an_interrupted_draw_goes_on(approved, own, cloister, monkeypatch):
    monkeypatch.setattr(models.sampling.balanced, "CHUNK_ROWS", 100)
    written = []

    def stop_at_the_third(self, number, chunk, write=models.sampling.resumable._Parts.write):
        if len(written) == 2:
            raise KeyboardInterrupt
        write(self, number, chunk)
        written.append(number)

    out = own / "long.parquet"
    draw = ["sample", approved, "--rows", "450", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(models.sampling.resumable._Parts, "write", stop_at_the_third)
        assert run(draw) != 0
    assert not out.exists()
    kept = [path.read_bytes() for path in sorted(own.glob(".long.parquet*/part-*"))]
    assert len(kept) == 2
    cloister(*draw)
    rows = pd.read_parquet(out)
    assert len(rows) == 450
    pd.testing.assert_frame_equal(
        rows[:200], pd.concat(map(pd.read_parquet, map(io.BytesIO, kept)), ignore_index=True)
    )
    assert not list(own.glob(".long*"))


def test_an_altered_folder_is_not_approved(released, own, capsys):
    page = own / "home" / "releases" / released.id / "public" / "certificate.html"
    page.write_text(page.read_text() + " ")
    assert run(["review", "approve", released.id, "--reason", "blind"]) == 1
    assert "certificate.html" in capsys.readouterr().err


def test_verify_finds_nothing_wrong(released, own, cloister):
    assert cloister("verify")["findings"] == []
    assert cloister("verify", released.id)["findings"] == []
    assert cloister("verify", own / "out")["findings"] == []


@pytest.mark.parametrize(
    "name", ["synthetic.parquet", "synthetic.csv", "certificate.yaml", "certificate.html"]
)
def test_verify_names_an_altered_file(own, capsys, name):
    path = own / "out" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert run(["verify", str(own / "out")]) == 1
    assert name in capsys.readouterr().out


def test_verify_names_an_altered_manifest(own, capsys):
    path = own / "out" / "manifest.json"
    path.write_text(
        path.read_text().replace("kamino", "kamina").replace("synthetic.csv", "synthetic.cvs")
    )
    assert run(["verify", str(own / "out")]) == 1
    assert "manifest.json" in capsys.readouterr().out


def test_verify_names_a_missing_file(released, own, capsys):
    (own / "home" / "releases" / released.id / "public" / "synthetic.csv").unlink()
    assert run(["verify"]) == 1
    assert "synthetic.csv" in capsys.readouterr().out


def test_a_ledger_without_its_tail_is_found_out(released, own, cloister, capsys):
    copy = own / "ledger.jsonl"
    anchor = cloister("ledger", "export", copy)["anchor"]
    assert cloister("verify", copy, "--anchor", anchor)["findings"] == []
    lines = copy.read_text().splitlines(keepends=True)
    copy.write_text("".join(lines[:-1]))
    assert run(["verify", str(copy)]) == 0
    assert run(["verify", str(copy), "--anchor", anchor]) == 1
    assert run(["verify", "--anchor", "last"]) == 2
    capsys.readouterr()
    for path in (own / "home").glob("ledger.db*"):
        path.unlink()
    cloister(
        "budget",
        "grant",
        "other",
        "--epsilon",
        1,
        "--delta",
        0,
        "--per",
        "ever",
        "--reason",
        "a younger ledger",
    )
    for what in ([], [str(own / "out")]):
        assert run(["verify", *what]) == 1
        assert "a certificate vouches for it" in capsys.readouterr().out


def test_report_shows_what_is_promised(released, own, cloister, capsys):
    assert cloister("report", released.id)["guarantee"]["epsilon"] == "1"
    assert run(["report", released.id]) == 0
    assert "certificate.html" in capsys.readouterr().out


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


def test_evaluate_trains_the_panel_on_the_targets_that_are_named(released, own, cloister, capsys):
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
    assert run(["evaluate", str(released.place.spec), *map(str, files), "--target", "nothing"]) == 2
    assert "no target 'nothing'" in capsys.readouterr().err


def test_constraints_check_counts_pairs_and_leaves_with_one(place, cloister, capsys):
    assert [
        found["violations"]
        for found in cloister("constraints", "check", place.spec, "--data", place.data)
    ] == [
        0,
        0,
    ]
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
    assert "kamino" in [method["name"] for method in cloister("methods")]


def test_no_ledger_is_made_by_looking(place, cloister):
    assert cloister("ledger", "list") == []
    assert cloister("budget", "show") == []
    assert existing_ledger(place.home) is None
