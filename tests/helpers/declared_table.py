"""A spec, or the columns, of one table that a test declares in a few words."""

from pathlib import Path

from cloister.schema.attributes import AnyAttribute
from cloister.schema.domain import Domain
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.spec_files.yaml_text import spec_text

WHOLE = {"type": "integer", "min": 0, "max": 9}
TWO = {"a": WHOLE, "b": WHOLE}
MOMENT = {"type": "datetime", "min": "2000-01-01", "max": "2030-01-01"}


def content(attributes, source=(), **more):
    return {
        "name": "table",
        "source": {"path": "table.csv", **dict(source)},
        "privacy": {
            "unit": "row",
            "relation": "add_remove",
            "rows": {"public": 100},
            "budget": {"epsilon": 10, "delta": 1e-6, "per": "year"},
        },
        **more,
        "attributes": attributes,
        "release": {"epsilon": 1, "delta": 1e-7},
    }


def declared(folder, attributes, source=(), **more) -> Spec:
    path = folder / "spec.yaml"
    path.write_text(spec_text(content(attributes, source, **more)), encoding="utf-8")
    return load_spec(path)


def domain_of(**columns: AnyAttribute) -> Domain:
    return Domain.of(columns, Path())
