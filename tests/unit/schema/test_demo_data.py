"""The demo's civic registry fits its spec; its rules hold, the soft one almost."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from validated_rows import validate_rows

from cloister.constraints.counting import violation_reports
from cloister.constraints.declared import constraints_of
from cloister.demo import civic_registry, write_demo_table
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
    types = "text date categorical integer ordinal boolean float datetime"
    assert {attribute.type for attribute in spec.attributes.values()} == set(types.split())
    assert registry[["zip", "city", "state"]].nunique().tolist() == [300, 80, 12]


def test_hard_rules_hold_and_the_soft_one_almost(registry, spec):
    table = Domain.of(spec.attributes, spec.folder).encode(registry)
    rules = constraints_of(
        spec.constraints, spec.attributes.keys(), spec.folder, domain=table.domain
    )
    reports = violation_reports(rules, table)
    counts = {report.name: report.violations for report in reports if report.hard}
    assert counts == dict.fromkeys((rule.name for rule in rules if rule.hard), 0)
    assert {"zip-city", "progressive-rate", "registered-at-16"} <= counts.keys()
    (soft,) = (report for report in reports if not report.hard)
    assert 0.8 < soft.percent < 1.3


def test_it_has_missing_values_a_point_mass_and_correlations(registry):
    missing = set(registry.columns[registry.isna().any()])
    assert missing == {"occupation", "savings", "registered_at"}
    assert 0.25 < (registry["salary"] == 0).mean() < 0.4
    employed = registry[registry["employed"]]
    salary = employed["salary"]
    assert salary.corr(employed["rate"]) > 0.7
    assert salary.groupby(employed["education"]).mean().max() > 2.5 * salary.min() + 1
    married = registry["marital_status"] == "married"
    children = registry["children"].groupby(married).mean()
    assert children[True] > 1.2 * children[False]


def test_it_depends_on_rows_and_seed_alone(registry):
    pd.testing.assert_frame_equal(civic_registry(), registry)
    assert not civic_registry(500, seed=1).equals(civic_registry(500, seed=2))
    assert len(civic_registry(3)) == 3


def test_the_module_writes_a_table_that_reads_back(tmp_path, spec, monkeypatch, capsys):
    out = tmp_path / "demo.csv"
    monkeypatch.setattr(sys, "argv", ["demo", str(out), "--rows", "200"])
    write_demo_table()
    domain = Domain.of(spec.attributes, spec.folder)
    read, written = domain.encode(read_frame(spec, out)), domain.encode(civic_registry(200))
    assert all((read.codes[name] == written.codes[name]).all() for name in domain.names)
    monkeypatch.setattr(sys, "argv", ["demo", str(tmp_path / "nowhere" / "demo.csv")])
    with pytest.raises(SystemExit) as ended:
        write_demo_table()
    assert ended.value.code == 2
    assert "there is no folder" in capsys.readouterr().err
