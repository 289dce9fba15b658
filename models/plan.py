"""What a fit will do, as a value: parameters and stages, made of public inputs only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from pydantic import TypeAdapter

from cloister.privacy.accounting.composition import event_of_stages
from cloister.privacy.events import Event


@dataclass(frozen=True)
class Stage:
    """One step of a plan that queries the data, with what it spends.

    ``part`` is the disjoint part of the rows that it reads; None if it reads all.
    """

    name: str
    event: Event
    explanation: str
    part: str | None = None


@dataclass(frozen=True)
class Forecast:
    """What something will need: seconds of processor time, and bytes of memory.

    Within a factor of two on a server of a few years ago. ``device_memory`` is what training takes
    of a CUDA device, if it is on one; 0 for what never is.
    """

    seconds: float
    memory: int
    device_memory: int = 0


@dataclass(frozen=True)
class Parameters:
    """Base of the parameters of a method's plans: frozen dataclasses, exact as JSON.

    Fractions are written as text.
    """

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        fields: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The parameters that :meth:`to_json` wrote; ValueError if they are not."""
        return TypeAdapter(cls).validate_python(dict(fields))


ParametersT = TypeVar("ParametersT", bound=Parameters)


@dataclass(frozen=True)
class Plan(Generic[ParametersT]):
    """What a fit will do: made of public inputs only; costs nothing.

    ``mapped`` says for the attributes of each joint table of a hard constraint, with how much noise
    it is counted: its standard deviation, in rows. ``rate_deviation`` is that of the noise of the
    rate of a soft constraint, as a share of all pairs; None if no rate is measured.
    """

    method: str
    sequence: tuple[str, ...]
    stages: tuple[Stage, ...]
    parameters: ParametersT
    forecast: Forecast
    mapped: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    rate_deviation: float | None = None

    @property
    def event(self) -> Event:
        """Everything the fit will spend."""
        return event_of_stages(self.stages)


AnyPlan = Plan[Any]
