"""A benchmark of two small releases through the command line, and what its configuration may be."""

import json

import pandas as pd
import pytest
import yaml

from cloister.benchmarks.config import load_benchmark
from cloister.constraints import constraints_of
from cloister.flows.cli.app import run
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version
from cloister.tasks.ledger.access import releases


def late_imports():
    global MlflowClient, Statistic, finished_run, home_of, insert, insert_sections, markers, spec_of
    from mlflow import MlflowClient

    from cloister.benchmarks.pages.figures import Statistic
    from cloister.benchmarks.pages.markdown import insert, insert_sections, markers
    from cloister.benchmarks.releases import finished_run, spec_of
    from cloister.benchmarks.runs import home_of


def declared(place, **changed):
    clubs = {"spec": str(place.spec), "data": "${CLUBS}/clubs.csv", "public": "made up"}
    title = "With constraints and without"
    rules = {"name": "rules", "title": title, "datasets": ["clubs"], "methods": ["kamino"]}
    content = {
        "name": "tiny",
        "seeds": [5],
        "datasets": {"clubs": clubs},
        "variants": {"free": {"constraints": []}},
        "experiments": [rules | {"epsilons": [0.5], "variants": ["free"]}],
    }
    path = place.folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(content | changed), encoding="utf-8")
    return path


@pytest.fixture
def config(place, monkeypatch):
    monkeypatch.setenv("CLUBS", str(place.folder))
    return declared(place)


def document(place):
    path = place.folder / "benchmarks.md"
    path.write_text("before\n{}\nstale\n{}\nafter\n".format(*markers("tiny")), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_benchmark_releases_measures_and_is_done_once(prefect_server, place, config, capsys):
    page = document(place)
    command = ["benchmark", str(config), "--markdown", str(page), "--json"]
    assert run(command) == 0
    said = json.loads(capsys.readouterr().out)
    (found,) = said["results"]
    assert found["cost"]["memory"] > 50 * 2**20
    assert found["cost"]["seconds"] > found["cost"]["steps"]["fit"] > 0
    assert 0 < found["accounted"] <= 0.5
    own = home_of(load_benchmark(config), Home.current())
    (charged,) = releases(own, "clubs")
    assert (charged.id, charged.state.value) == (found["release"], "candidate")
    assert releases(Home.current(), None) == []
    rows = pd.read_csv(own.folder / "results" / "results.csv")
    # measured under the dataset's own constraints
    assert rows["violations.region-capital.percent"].item() > 1
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "stale" not in text
    assert "| clubs | kamino, free, ε 0.5 |" in text
    assert (place.folder / "benchmarks" / "tiny-rules-spread.png").exists()
    tracked = MlflowClient(Home.current().tracking).get_run(said["tracking run"])
    assert tracked.data.metrics["clubs/kamino/free/epsilon 0.5/cpu_seconds"] == pytest.approx(
        found["cost"]["cpu_seconds"]
    )
    assert run(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["done before"], again["results"]) == (1, said["results"])
    assert len(releases(own, "clubs")) == 1


def test_a_variant_changes_constraints_and_nothing_else(place, config):
    (combination,) = load_benchmark(config).all_combinations()
    spec, copy = load_spec(place.spec), load_spec(spec_of(combination, Home.current()))
    assert copy.model_dump() == spec.model_dump() | {"constraints": ()}
    assert list(copy.attributes) == list(spec.attributes)
    assert finished_run(combination, place.home) is None


def test_a_variant_may_take_constraints_from_a_file_that_the_environment_names(
    place, config, tmp_path, monkeypatch
):
    (tmp_path / "found.ic").write_text("t1&t2&EQ(t1.capital,t2.capital)&IQ(t1.age,t2.age)\n")
    monkeypatch.setenv("RULES", str(tmp_path))
    variants = {"free": {"constraints": [{"file": "${RULES}/found.ic", "soft": True}]}}
    (combination,) = load_benchmark(declared(place, variants=variants)).all_combinations()
    copy = load_spec(spec_of(combination, Home.current()))
    (rule,) = constraints_of(copy.constraints, tuple(copy.attributes), copy.folder)
    assert (set(rule.attributes), rule.hard) == ({"capital", "age"}, False)


def test_what_two_experiments_share_is_done_once_for_the_one_that_asks_for_more(place, config):
    (experiment,) = yaml.safe_load(config.read_text())["experiments"]
    experiments = [
        experiment,
        experiment | {"name": "again", "epsilons": ["1/2", 1], "variants": ["declared", "free"]},
    ]
    shared = load_benchmark(declared(place, experiments=experiments, seeds=[1, 2]))
    assert len(shared.all_combinations()) == 2 * 2 * 2
    experiments = [
        experiment | {"evaluate": "full"},
        experiment | {"name": "again", "epsilons": [0.5, 1]},
    ]
    shared = load_benchmark(declared(place, experiments=experiments, evaluate="none"))
    levels = [(float(c.epsilon), c.evaluation.level) for c in shared.all_combinations()]
    assert levels == [(0.5, "full"), (1.0, "none")]


def test_an_experiment_may_have_repeats_of_its_own(place, config):
    (experiment,) = yaml.safe_load(config.read_text())["experiments"]
    experiments = [experiment, experiment | {"name": "again", "seeds": [4, 5]}]
    benchmark = load_benchmark(declared(place, experiments=experiments))
    seeds = [{c.seed for c in benchmark.combinations(each)} for each in benchmark.experiments]
    assert seeds == [{*benchmark.seeds}, {4, 5}]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": [1]}, "unknown key"),
        ({"seeds": []}, "seeds"),
        ({"datasets": {"clubs": {"spec": "absent.yaml", "data": "clubs.csv"}}}, "absent.yaml"),
        ({"datasets": {"members": {"spec": "a.yaml", "data": "b.csv"}}}, "no dataset 'clubs'"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_before_anything_is_made(
    place, config, capsys, changed, told
):
    assert run(["benchmark", str(declared(place, **changed))]) == 2
    assert told in capsys.readouterr().err
    assert not place.home.folder.exists()


def test_figures_of_tables_that_are_not_public_are_not_shown(place, config, capsys):
    dataset = {"spec": str(place.spec), "data": str(place.data)}
    path = declared(place, datasets={"clubs": dataset})
    assert run(["benchmark", str(path), "--markdown", str(document(place))]) == 2
    assert "public" in capsys.readouterr().err


def test_what_is_not_there_is_named(place, config, capsys, monkeypatch):
    """Markers of a document, an experiment, a variable of the environment."""
    page = place.folder / "page.md"
    page.write_text("nothing here\n")
    assert run(["benchmark", str(config), "--markdown", str(page)]) == 2
    assert markers("tiny")[0] in capsys.readouterr().err
    assert run(["benchmark", str(config), "--only", "lost"]) == 2
    said = capsys.readouterr().err
    assert "no experiment 'lost'" in said and "it has rules" in " ".join(said.split())
    assert not place.home.folder.exists()
    monkeypatch.delenv("CLUBS")
    assert run(["benchmark", str(config)]) == 2
    assert "CLUBS" in capsys.readouterr().err


def test_text_goes_between_the_markers_only(place):
    page = document(place)
    insert(page, "tiny", "fresh")
    insert(page, "tiny", "fresh")
    begin, end = markers("tiny")
    assert page.read_text().split() == f"before {begin} fresh {end} after".split()


def test_figures_of_older_code_are_marked_where_a_page_is_written(place):
    page, made = document(place), "Measured on 2026-01-01, Cloister {}, 2 cores"
    older, newer = made.format(f"0.1.0+{'0' * 16}"), made.format(code_version())
    page.write_text(older + "\n" + page.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):
        insert(page, "tiny", newer)
        text = page.read_text(encoding="utf-8")
        assert text.startswith(older.replace(", 2 cores", " (older code), 2 cores"))
        assert f"{newer}\n" in text


def test_sections_are_replaced_by_their_headings_and_new_ones_come_last(place):
    page = document(place)
    insert(page, "tiny", "all of it\n\n### One\n\nold\n\n### Two\n\nstays\n")
    insert_sections(page, "tiny", ["### Three\n\nnew", "### One\n\nfresh"])
    begin, end = markers("tiny")
    between = page.read_text().split(begin)[1].split(end)[0].split()
    assert between == "all of it ### One fresh ### Two stays ### Three new".split()


@pytest.mark.slow
def test_one_experiment_alone_keeps_the_tables_of_others(prefect_server, place, config, capsys):
    (experiment,) = yaml.safe_load(config.read_text())["experiments"]
    other = experiment | {"name": "other", "title": "Another", "epsilons": [1]}
    path = declared(place, experiments=[experiment, other], evaluate="none")
    page = document(place)
    insert(page, "tiny", f"head\n\n### {experiment['title']}\n\nold\n\n### Another\n\nstays\n")
    options = ["--only", "rules", "--markdown", str(page)]
    assert run(["benchmark", str(path), *options, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["results"]) == 1
    text = page.read_text(encoding="utf-8")
    assert "old" not in text.split("### Another")[0]
    assert f"cloister benchmark {path} --only rules --markdown {page}" in text
    assert text.endswith(f"### Another\n\nstays\n{markers('tiny')[1]}\nafter\n")


def test_a_deviation_is_said_of_repeats_only():
    assert Statistic(1.25, None).text(2) == "1.25"
    assert Statistic(1.25, 0.5).text(2) == "1.25 ± 0.50"
