"""The specs in data/specs: public bounds, published constraints, and the real tables inside."""

import os
from pathlib import Path

import pytest
from validated_rows import validate_rows

from cloister.constraints.declared import constraints_of
from cloister.schema.declarations import ConstraintDeclaration
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import data_derived, load_spec

ROOT = Path(__file__).parents[3]
DATA = ROOT / os.environ.get("CLOISTER_DATA", "../shared/data")
TABLES = {
    "adult": "adult/adult",
    "br2000": "br2000/br2000",
    "tax": "tax/tax30k",
    "tpch": "tpch/tpch_order",
}
SLOW = [("adult", 0), ("tax", 42), ("tpch", 0)]
UNTARGETED = {"adult": set(), "br2000": set(), "tax": {"City", "Zip"}, "tpch": {"c_custkey"}}

needs_data = pytest.mark.skipif(
    not DATA.is_dir() and os.environ.get("CI") != "true",
    reason="the real tables are not here; set CLOISTER_DATA",
)


def _spec(name):
    return load_spec(ROOT / "data" / "specs" / f"{name}.yaml")


@pytest.mark.parametrize("name", TABLES)
def test_every_bound_is_public_and_every_attribute_has_a_target(name):
    spec = _spec(name)
    assert data_derived(spec) == []
    assert all(attribute.provenance != "declared" for attribute in spec.attributes.values())
    assert set(spec.attributes) - set(spec.evaluation.targets) == UNTARGETED[name]


@needs_data
@pytest.mark.parametrize("name", TABLES)
def test_the_constraints_are_the_published_ones(name):
    spec = _spec(name)
    declared = constraints_of(spec.constraints, spec.attributes.keys(), spec.folder)
    file = ConstraintDeclaration(file=f"{Path(TABLES[name]).name}.ic")
    published = constraints_of([file], spec.attributes.keys(), (DATA / TABLES[name]).parent)
    for ours, theirs in zip(declared, published, strict=True):
        assert ours.predicates == theirs.predicates


@needs_data
@pytest.mark.parametrize(
    ("name", "emptied"),
    [("br2000", 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_the_real_table_lies_in_its_declared_domain(name, emptied):
    spec = _spec(name)
    frame, report = validate_rows(read_frame(spec, DATA / f"{TABLES[name]}.csv"), spec)
    assert len(frame) == spec.privacy.rows.public
    assert (report.dropped, report.clipped, report.emptied) == (0, 0, emptied)
