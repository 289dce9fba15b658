"""Tables of units: a row with its children, and theirs, as released tables have them."""

import numpy as np
import pandas as pd
import pytest
from clinic import MOST, clinic, wards
from shape import DatabaseShape, release_database

from cloister.constraints.counting import violation_reports
from cloister.errors import PlanError
from cloister.models.registry import create
from cloister.models.relational.family_model import FamilyModel
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource


@pytest.fixture(scope="module")
def trial():
    return release_database(clinic(2_000), 20, noise=NoiseSource.insecure(1))


@pytest.fixture(scope="module")
def real(trial):
    return {name: table.frame() for name, table in trial.real.tables.items()}


@pytest.fixture(scope="module")
def drawn(trial):
    return {name: table.frame() for name, table in trial.synthetic.tables.items()}


def test_rows_refer_to_rows_and_none_has_too_many(trial, drawn):
    assert isinstance(trial.model, FamilyModel)
    for key in trial.task.schema.keys:
        assert set(drawn[key.table][key.column]) <= set(drawn[key.parent][key.key])
        assert drawn[key.table][key.column].value_counts().max() <= MOST[key.table]
    assert len(drawn["patients"]) == 2_000


def test_every_rule_holds_between_rows_of_one_table_and_of_two(trial, drawn):
    for name, task in trial.task.tables.items():
        reports = violation_reports(task.constraints, trial.synthetic.tables[name])
        assert not any(report.violations for report in reports)
    assert [rule.report(trial.synthetic).violations for rule in trial.task.across] == [0, 0]
    assert (drawn["visits"].groupby("patient")["insurer"].nunique() == 1).all()
    assert not drawn["drugs"].duplicated(["visit", "kind"]).any()


def numbers(tables, child: str, parent: str, column: str) -> pd.Series:
    rows = tables[parent].set_index("id")
    return tables[child].groupby(column).size().reindex(rows.index, fill_value=0)


@pytest.mark.parametrize(
    ("child", "parent", "column"),
    [
        ("visits", "patients", "patient"),
        ("calls", "patients", "patient"),
        ("drugs", "visits", "visit"),
    ],
)
def test_rows_have_as_many_children_as_in_the_data(real, drawn, child, parent, column):
    shares = [
        numbers(tables, child, parent, column).value_counts(normalize=True)
        for tables in (real, drawn)
    ]
    assert shares[0].sub(shares[1], fill_value=0).abs().sum() / 2 < 0.03


def test_how_many_children_there_are_depends_on_the_row(real, drawn):
    for tables in (real, drawn):
        counts = numbers(tables, "visits", "patients", "patient").to_numpy()
        old = tables["patients"]["age"].to_numpy() >= 45
        assert counts[old].mean() - counts[~old].mean() == pytest.approx(1.0, abs=0.15)
        given = numbers(tables, "drugs", "visits", "visit").to_numpy()
        ward = tables["visits"]["ward"].astype(str).to_numpy()
        assert given[ward == "surgery"].mean() == pytest.approx(1.75, abs=0.15)
        assert given[ward == "children"].mean() == pytest.approx(0.3, abs=0.15)


def test_two_children_of_one_row_are_as_alike_as_in_the_data(real, drawn):
    def alike(visits: pd.DataFrame) -> float:
        pairs = visits.merge(visits, on="patient")
        pairs = pairs[pairs["id_x"] != pairs["id_y"]]
        return float((pairs["ward_x"].astype(str) == pairs["ward_y"].astype(str)).mean())

    assert alike(drawn["visits"]) == pytest.approx(alike(real["visits"]), abs=0.04)


def test_a_saved_model_draws_the_same_tables(trial):
    saved = create("relational").restore(trial.task, *trial.model.state())
    drawn = saved.sample(200, SamplingSource(3))
    again = trial.model.sample(200, SamplingSource(3))
    for name, table in again.tables.items():
        assert drawn.tables[name].frame().equals(table.frame())
    assert saved.post_processing() == trial.model.post_processing()


@pytest.fixture(scope="module")
def visited():
    return release_database(wards(number=300), 20, noise=NoiseSource.insecure(1))


def test_rows_refer_to_rows_of_catalogues_that_go_with_their_attributes(visited):
    real, drawn = (
        {name: table.frame() for name, table in tables.tables.items()}
        for tables in (visited.real, visited.synthetic)
    )
    assert isinstance(visited.model, FamilyModel)
    assert not drawn["visits"].duplicated(["patient", "ward"]).any()
    for key in visited.task.schema.keys:
        assert set(drawn[key.table][key.column]) <= set(drawn[key.parent][key.key])
        assert drawn[key.table][key.column].value_counts().max() <= key.max_rows

    def correlations(tables) -> list[float]:
        joined = tables["visits"].merge(tables["patients"], left_on="patient", right_on="id")
        joined = joined.merge(tables["wards"], left_on="ward", right_on="id").astype({"age": float})
        own = tables["visits"].groupby("ward").size().reindex(tables["wards"]["id"], fill_value=0)
        return [
            joined["age"].corr(joined["floor"].astype(float)),
            np.corrcoef(own, tables["wards"]["beds"].astype(float))[0, 1],
        ]

    (age, beds), (same_age, same_beds) = map(correlations, (real, drawn))
    assert same_age == pytest.approx(age, abs=0.1)
    assert beds > 0.8 and same_beds > 0.3  # how many visit a ward of some attributes
    regions = [
        tables["patients"]
        .merge(tables["houses"], left_on="house", right_on="id")["region"]
        .astype(str)
        .value_counts(normalize=True)
        for tables in (real, drawn)
    ]
    assert regions[0].sub(regions[1], fill_value=0).abs().sum() / 2 < 0.05


def test_more_rows_than_a_catalogue_has_places_for_are_refused_in_the_plan():
    shape = wards(patients=1_300)
    tables = {name: dict(table) for name, table in shape.spec["tables"].items()}
    tables["patients"]["references"] = {"house": {"table": "houses", "max_rows": 40}}
    with pytest.raises(PlanError, match=r"raise max_rows of 'patients\.house'"):
        release_database(DatabaseShape(shape.frames, {**shape.spec, "tables": tables}), 5)
