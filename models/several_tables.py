"""Shared by methods of several tables: a door with labels by table, and parts of stored models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloister.models.protocol import Arrays
from cloister.models.task import AnyPlan
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.queries.query import (
    AnswerT,
    Divider,
    Door,
    Mechanism,
    Query,
    SensitivityT,
    TableRows,
)


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


@dataclass(frozen=True)
class LabelledDoor:
    """The door to one table, whose answers are labelled with its name."""

    door: Door[TableRows]
    table: str

    @property
    def neighbours(self) -> Neighbours:
        """See :class:`Door`."""
        return self.door.neighbours

    @property
    def secure(self) -> bool:
        """See :class:`Door`."""
        return self.door.secure

    def answer(
        self,
        query: Query[TableRows, SensitivityT, AnswerT],
        mechanism: Mechanism[SensitivityT],
        label: str,
    ) -> AnswerT:
        """See :class:`Door`."""
        return self.door.answer(query, mechanism, f"{self.table}: {label}")

    def divide(self, split: Divider[TableRows], label: str) -> Sequence[Door[TableRows]]:
        """See :class:`Door`."""
        return self.door.divide(split, f"{self.table}: {label}")
