"""Conjunctions in a benchmark: releases beside reference answers, measured on the same rows."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from validated_rows import validate_rows

from cloister.benchmarks.config import load_benchmark
from cloister.benchmarks.measures.conjunctions import DummyColumns, real_rows
from cloister.benchmarks.tables.hospital import hospital_table
from cloister.errors import SpecError
from cloister.flows.cli.app import run
from cloister.privacy.accounting.accountants import epsilon_of_each
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import releases
from cloister.tasks.requests.resolved import declared_context


def late_imports():
    global home_of, noisy_answers, references
    from cloister.benchmarks.measures import references
    from cloister.benchmarks.measures.references import noisy_answers
    from cloister.benchmarks.runs import home_of


PAGE = "<!-- generated: pairs -->\n<!-- end: pairs -->\n"


def config(place, methods, public="made up", **changed):
    experiment = {"name": "errors", "title": "Errors", "datasets": ["clubs"], "methods": methods}
    experiment |= {"epsilons": [1], "tables": ["conjunctions", "cost"]}
    dataset = {"spec": str(place.spec), "data": str(place.data)}
    content = {
        "name": "pairs",
        "delta": "1/1073741824",
        "evaluate": "none",
        "datasets": {"clubs": dataset | ({"public": public} if public else {})},
        "experiments": [experiment | changed],
    }
    path = place.folder / "pairs.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_release_and_reference_answers_are_shown_together(prefect_server, place, capsys):
    page = place.folder / "page.md"
    page.write_text(PAGE)
    path = config(place, ["copula-identity", "no-cor", "lap"])
    command = ["benchmark", str(path), "--markdown", str(page), "--json"]
    assert run(command) == 0
    said = json.loads(capsys.readouterr().out)
    by_method = {found["method"]: found["evaluation"] for found in said["results"]}
    names = [found["queries"] for found in by_method["copula-identity"]["conjunctions"]]
    assert names[:3] == ["1-way", "2-way", "3-way"]
    assert by_method["no-cor"]["conjunctions"][0]["best"]["100"]["largest"] == 0
    assert by_method["lap"]["conjunctions"][0]["best"]["100"]["average"] > 0
    own = home_of(load_benchmark(path), Home.current())
    assert len(releases(own, "clubs")) == 1  # nothing was charged for the others
    text = page.read_text(encoding="utf-8")
    assert "| clubs | 2-way | copula-identity, ε 1 |" in text
    assert "| clubs | 2-way | no-cor |" in text
    assert "| clubs | no-cor |" not in text  # no release: no cost
    assert (place.folder / "page" / "pairs-errors-conjunctions-clubs.png").exists()
    assert run(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["done before"], again["results"]) == (3, said["results"])


@pytest.mark.slow
def test_a_model_of_the_paper_gives_binary_columns_that_are_measured_apart(prefect_server, place):
    path = config(place, ["copula-paper"], epsilons=[20])
    place.edit("epsilon: 4", "epsilon: 40")
    assert run(["benchmark", str(path), "--json"]) == 0
    own = home_of(load_benchmark(path), Home.current())
    (done,) = (json.loads(file.read_text()) for file in (own.folder / "runs").iterdir())
    records, binary = done["evaluation"]["conjunctions"], done["evaluation"]["binary columns"]
    assert [found["queries"] for found in binary] == [found["queries"] for found in records]
    spread = 5 * math.sqrt(2000) / 2  # of a column that is 1 in half of the rows, drawn at random
    assert binary[0]["best"]["100"]["largest"] < spread + 100
    assert binary[0] != records[0]


def test_laplace_noise_has_the_scale_of_advanced_composition(place, monkeypatch):
    """Over answers that noise does not bring below zero, by the mean size of discrete noise."""
    real = real_rows(place.spec, place.data)
    assert len(real.columns.cells) == 5
    epsilon, delta = Fraction(20), Fraction(1, 2**30)
    monkeypatch.setattr(references, "NoiseSource", lambda: NoiseSource.insecure(1))
    noisy = noisy_answers(real, epsilon, delta)
    for tables, exact, found in zip((15, 15, 10), real.answers.ways, noisy.ways, strict=True):
        scale = float(real.neighbours.partition.l1 / epsilon_of_each(epsilon, delta, tables))
        large = exact > 20 * scale
        assert large.sum() > 20
        spread = 8 / math.sqrt(large.sum())
        ratio = math.exp(-1 / scale)
        size = 2 * ratio / (1 - ratio**2)
        assert np.abs(found - exact)[large].mean() == pytest.approx(size, rel=spread)
        assert found.min() >= 0


def test_reference_answers_want_a_public_table_and_one_to_be_shown_in(place):
    for reference in ("no-cor", "lap"):
        with pytest.raises(SpecError, match="public: REASON"):
            load_benchmark(config(place, [reference], public=None))
    with pytest.raises(SpecError, match="add conjunctions to its tables"):
        load_benchmark(config(place, ["no-cor"], tables=["cost"]))


def test_what_two_experiments_share_is_counted_if_either_shows_it(place):
    path = config(place, ["copula"])
    content = yaml.safe_load(path.read_text())
    (shown,) = content["experiments"]
    content["experiments"] = [shown | {"name": "first", "tables": ["cost"]}, shown]
    path.write_text(yaml.safe_dump(content))
    (combination,) = load_benchmark(path).all_combinations()
    assert combination.conjunctions


def test_the_hospital_table_has_the_papers_shape_and_strong_correlations():
    spec = load_spec(Path("data/specs/hospital.yaml"))
    context = declared_context(spec, 10_000)
    valid, _ = validate_rows(hospital_table(), spec)
    rows = context.task.lead.domain.encode(valid)
    columns = DummyColumns.of(rows.domain)
    assert (rows.rows, len(columns.cells), columns.width) == (10_000, 9, 1201)
    strong = np.abs(columns.correlations(columns.answers(rows))) >= 0.5
    assert 1_000 < strong.sum() < 0.01 * len(strong)  # the paper's has 3,355 of 626,491
