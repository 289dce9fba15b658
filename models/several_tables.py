"""Shared by methods of several tables: their plans as JSON, and parts of stored models."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cloister.models.protocol import Arrays
from cloister.models.task import AnyPlan


def json_texts(value: Any) -> Any:
    """JSON values, fractions as text."""
    if isinstance(value, dict):
        return {name: json_texts(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [json_texts(part) for part in value]
    return str(value) if isinstance(value, Fraction) else value


def plans_json(plans: Mapping[str, AnyPlan]) -> dict[str, Any]:
    """The plans of tables as JSON values."""
    return {
        name: {"sequence": list(plan.sequence), "parameters": plan.parameters.to_json()}
        for name, plan in plans.items()
    }


def part_of_arrays(arrays: Arrays, name: str) -> Arrays:
    """The arrays under ``name/``, named without it."""
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }
