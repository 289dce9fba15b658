"""A release request as the flow takes it: the form of the orchestrator, stored in deployments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from cloister.evaluation.options import Level
from cloister.schema.declarations.release import Sampling
from cloister.tasks.requests.options import Options
from cloister.tasks.requests.resolved import ResolvedRequest


class ReleaseRequest(BaseModel):
    """One release of the dataset that a spec declares; what is left out is as the spec says.

    Paths are those of the machine that runs the flow. ``epsilon`` and ``delta`` are text, so that
    they are exact.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: Path = Field(description="The spec of the dataset, a YAML file.")
    method: str | None = Field(None, description="Method of synthesis.")
    epsilon: str | None = Field(
        None, description="Privacy budget of this release, exact: 0.5 or 1/3."
    )
    delta: str | None = Field(
        None, description="Probability that the guarantee fails, less than 1 / rows."
    )
    rows: int | None = Field(None, description="Rows to draw.")
    data: Path | None = Field(None, description="The data, in place of the spec's source.")
    out: Path | None = Field(None, description="A new folder for the public files.")
    database: str | None = Field(
        None, description="URL of a database to load the tables into, without a password."
    )
    replace: bool = Field(
        default=False, description="Replace the tables of an earlier release in the database."
    )
    csv: bool = Field(default=False, description="Write synthetic.csv too.")
    seed: int | None = Field(None, description="Seed for drawing rows; the noise has none.")
    evaluate: Level = Field("quick", description="Measures against the real data; internal.")
    sampling: Sampling | None = Field(
        None, description="Rows under soft constraints: inside supports, or one after the other."
    )
    resample: float | None = Field(None, description="Share of cells drawn anew, if sequential.")
    tries: int | None = Field(None, description="Tries a cell of accept-reject, if sequential.")
    device: str | None = Field(None, description="Where to train: auto, cpu, cuda or cuda:NUMBER.")
    prior: str | None = Field(
        None, description="A release whose noisy numbers are used again, or latest."
    )
    by: str = Field("prefect", description="Who requests it.")

    @classmethod
    def of(cls, spec: Path, options: Options, by: str) -> Self:
        """The request that a command line makes."""
        return cls(spec=spec, by=by, **asdict(options))

    @property
    def options(self) -> Options:
        """Its part that a command line would give as options."""
        return Options(**{field.name: getattr(self, field.name) for field in fields(Options)})

    def resolve(self) -> ResolvedRequest:
        """The request with every default resolved.

        Raises:
            SpecError, PlanError, InputError: as :meth:`ResolvedRequest.of`.
        """
        return ResolvedRequest.of(self.spec, self.options, self.by)

    def recurring(self) -> Self:
        """The request with absolute paths, without places that a second run would find taken."""
        data = self.data.absolute() if self.data else None
        taken = ("out", "seed") if self.replace else ("out", "database", "seed")
        return self.model_copy(
            update={"spec": self.spec.absolute(), "data": data} | dict.fromkeys(taken)
        )

    def parameters(self) -> dict[str, Any]:
        """The arguments of the flow, as JSON values."""
        return {"request": self.model_dump(mode="json")}


def nest_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the release flow.

    The flat parameters of an earlier version become a request.
    """
    return dict(parameters) if "request" in parameters else {"request": dict(parameters)}
