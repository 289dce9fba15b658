"""What the specs of shapes have in common: a wide budget, of which a release spends epsilon 1."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def spec_of(
    name: str,
    rows: int,
    attributes: Mapping[str, Any],
    constraints: Iterable[Mapping[str, Any]] = (),
    *,
    unit: str | Mapping[str, Any] = "row",
    method: str = "auto",
    delta: str = "1e-6",
) -> dict[str, Any]:
    """The content of a spec file whose table of so many rows lies beside it."""
    return {
        "name": name,
        "source": {"path": f"{name}.csv"},
        "privacy": {
            "unit": unit,
            "relation": "add_remove",
            "rows": {"public": rows},
            "budget": {"epsilon": 100, "delta": "1e-4", "per": "year"},
        },
        "attributes": dict(attributes),
        "constraints": list(constraints),
        "release": {"method": method, "epsilon": 1, "delta": delta},
    }


def spec_of_tables(
    name: str, unit: str, tables: Mapping[str, Mapping[str, Any]], delta: str = "1e-6"
) -> dict[str, Any]:
    """The content of a spec file whose tables lie beside it; ``rows`` of each are numbers.

    The privacy unit is a row of table ``unit``.
    """
    declared = {
        name: {"source": {"path": f"{name}.csv"}, **table, "rows": {"public": table["rows"]}}
        for name, table in tables.items()
    }
    rows = declared[unit].pop("rows")
    return {
        "name": name,
        "privacy": {
            "unit": {"table": unit},
            "relation": "add_remove",
            "rows": rows,
            "budget": {"epsilon": 100, "delta": "1e-4", "per": "year"},
        },
        "tables": declared,
        "release": {"method": "auto", "epsilon": 1, "delta": delta},
    }


def whole(least: int, most: int, **more: Any) -> dict[str, Any]:
    """A column of whole numbers."""
    return {"type": "integer", "min": least, "max": most, "provenance": "form", **more}


def listed(*values: Any, **more: Any) -> dict[str, Any]:
    """A column of listed values."""
    return {"type": "categorical", "values": list(values), "provenance": "form", **more}


def dependencies(texts: Sequence[str]) -> list[dict[str, str]]:
    """Hard constraints of functional dependencies between columns of any name."""
    return [{"name": f"fd{number}", "fd": _quoted(text)} for number, text in enumerate(texts, 1)]


def _quoted(text: str) -> str:
    left, right = text.split(" -> ")
    return " -> ".join(
        ", ".join(f"`{name}`" for name in side.split(", ")) for side in (left, right)
    )
