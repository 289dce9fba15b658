"""The demo's civic registry fits its spec; its rules hold, the soft one almost."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from validated_rows import validate_rows

from cloister.constraints.counting import violation_reports
from cloister.constraints.declared import constraints_of
from cloister.demo import civic_registry
from cloister.schema.domain import Domain
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import data_derived, load_spec

SPEC = Path(__file__).parents[3] / "data" / "specs" / "demo.yaml"


@pytest.fixture(scope="module")
def registry():
    return civic_registry()


@pytest.fixture(scope="module")
def spec():
    return load_spec(SPEC)


def test_the_registry_fits_its_spec(registry, spec):
    assert registry.shape == (20_000, 14)
    assert validate_rows(registry, spec)[1].valid
    assert data_derived(spec) == []
    assert {attribute.type for attribute in spec.attributes.values()} == {
        "text",
        "date",
        "categorical",
        "integer",
        "ordinal",
        "boolean",
        "float",
        "datetime",
    }


def test_hard_rules_hold_and_the_soft_one_almost(registry, spec):
    table = Domain.of(spec.attributes, spec.folder).encode(registry)
    reports = violation_reports(
        constraints_of(spec.constraints, spec.attributes.keys(), spec.folder), table
    )
    assert {report.name: report.violations for report in reports if report.hard} == {
        "zip-city": 0,
        "city-state": 0,
        "progressive-rate": 0,
        "no-job-no-salary": 0,
    }
    (soft,) = (report for report in reports if not report.hard)
    assert 0.8 < soft.percent < 1.3


def test_it_has_missing_values_a_point_mass_and_correlations(registry):
    assert set(registry.columns[registry.isna().any()]) == {
        "occupation",
        "savings",
        "registered_at",
    }
    assert 0.25 < (registry["salary"] == 0).mean() < 0.4
    employed = registry[registry["employed"]]
    level = employed["education"].map(
        {name: n for n, name in enumerate(registry["education"].unique())}
    )
    assert employed["salary"].corr(employed["rate"]) > 0.7
    assert (
        employed["salary"].groupby(employed["education"]).mean().max()
        > 2.5 * employed["salary"].min() + 1
    )
    assert level.notna().all()
    married = registry["marital_status"] == "married"
    assert (
        registry.loc[married, "children"].mean()
        > 2 * registry.loc[~married, "children"].mean() * 0.6
    )


def test_places_are_many_and_nested(registry):
    assert registry[["zip", "city", "state"]].nunique().tolist() == [300, 80, 12]


def test_it_depends_on_rows_and_seed_alone(registry):
    pd.testing.assert_frame_equal(civic_registry(), registry)
    assert not civic_registry(500, seed=1).equals(civic_registry(500, seed=2))
    assert len(civic_registry(3)) == 3


def test_a_folder_that_is_not_there_is_named(tmp_path):
    out = tmp_path / "nowhere" / "demo.csv"
    command = [sys.executable, "-m", "cloister.demo", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=SPEC.parents[2])
    assert ended.returncode == 2
    assert "there is no folder" in ended.stderr and "Traceback" not in ended.stderr


def test_the_module_writes_a_table_that_reads_back(tmp_path, registry, spec):
    out = tmp_path / "demo.csv"
    subprocess.run(
        [sys.executable, "-m", "cloister.demo", str(out)], check=True, cwd=SPEC.parents[2]
    )
    domain = Domain.of(spec.attributes, spec.folder)
    read, written = domain.encode(read_frame(spec, out)), domain.encode(registry)
    assert all((read.codes[name] == written.codes[name]).all() for name in domain.names)
