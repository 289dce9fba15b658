"""A release request: the one list of what may be requested of a release besides its spec.

The options of the command line, the signature in Python, the form of the orchestrator and what a
deployment stores are all made from its fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Number
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from cloister.errors import InputError
from cloister.evaluation import Level
from cloister.schema.declarations import Sampling
from cloister.schema.sources.files_and_urls import is_url

_FORMER = MappingProxyType({"seed": "seed_sampling", "tries": "accept_reject"})
"""Present names of fields by those that versions before 0.3 stored."""


LOCAL_WORKERS = r"local:([1-9][0-9]{0,2})"
"""So many workers of this machine, for the time of the command."""

_REMOTE_WORKERS = r"tls://[^\s/]+:[0-9]{1,5}"
"""The scheduler of a cluster that somebody keeps."""


def require_workers(address: str | None) -> None:
    """Passes if workers are none, ``local:N``, or those of a scheduler, ``tls://HOST:PORT``.

    Raises:
        InputError: they are not.
    """
    forms = (LOCAL_WORKERS, _REMOTE_WORKERS)
    if address is not None and not any(re.fullmatch(form, address) for form in forms):
        raise InputError(f"--workers is local:N or tls://HOST:PORT, not '{address}'")


class ReleaseRequest(BaseModel):
    """One release of the dataset that a spec declares; what is left out is as the spec says.

    Paths are those of the machine that runs the flow. ``epsilon`` and ``delta`` are text, so that
    they are exact. What is None is not said.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: Path = Field(description="The spec of the dataset, a YAML file.")
    method: str | None = Field(None, description="Method of synthesis; see cloister methods.")
    epsilon: str | None = Field(
        None, description="Privacy budget of this release, exact: 0.5 or 1/3."
    )
    delta: str | None = Field(
        None, description="Probability that the guarantee fails, less than 1 / rows."
    )
    rows: int | None = Field(
        None, description="Rows to draw; by default as many as the spec declares."
    )
    data: Path | None = Field(None, description="The data, in place of the spec's source.")
    block: str | None = Field(
        None,
        description="Of growing data, the blocks to read: 2026-10, 2026-08..2026-10, or previous.",
    )
    out: str | None = Field(
        None,
        description="A new folder for the public files, or the URL of a database for the tables.",
    )
    replace: bool = Field(
        default=False,
        description="Replace the tables that an earlier release made in the database.",
    )
    csv: bool = Field(default=False, description="Write synthetic.csv too.")
    seed_sampling: int | None = Field(
        None, description="Seed for drawing rows; the noise has none."
    )
    evaluate: Level = Field(
        "quick", description="Measures against the real data, internal; full trains models."
    )
    sampling: Sampling | None = Field(
        None,
        description="Rows under soft constraints: inside supports (feasible sets), or in sequence.",
    )
    resample: float | None = Field(
        None, description="Of sequential rows: share of cells drawn anew, 0 to 1."
    )
    accept_reject: int | None = Field(
        None,
        description="Of sequential rows: draw cells by accept-reject, up to this many tries.",
        json_schema_extra={"metavar": "TRIES"},
    )
    device: str | None = Field(None, description="Where to train: auto, cpu, cuda or cuda:NUMBER.")
    workers: str | None = Field(
        None,
        description="Processes that read and count the rows: local:N, or tls://HOST:PORT of Dask.",
        json_schema_extra={"metavar": "local:N|tls://HOST:PORT"},
    )
    prior: str | None = Field(
        None,
        description="A previous release of the dataset whose noisy numbers are reused.",
        json_schema_extra={"metavar": "RELEASE|latest"},
    )
    purpose: str = Field("", description="What the release is for, in a few words.")
    by: str = Field("prefect", description="Who requests it.")

    @model_validator(mode="before")
    @classmethod
    def _named_as_today(cls, fields: Any) -> Any:
        """Fields under their present names; earlier versions had two fields for the output."""
        if not isinstance(fields, Mapping):
            return fields
        renamed = {_FORMER.get(name, name): value for name, value in fields.items()}
        database = renamed.pop("database", None)
        return renamed | ({"out": database} if database else {})

    @field_validator("epsilon", "delta", "out", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """Numbers and paths as text, a float as the decimal that it is written as."""
        is_plain = isinstance(value, Number | PurePath) and not isinstance(value, bool)
        return str(value) if is_plain else value

    @property
    def database(self) -> str | None:
        """The URL of the database that the tables go to."""
        return self.out if self.out is not None and is_url(self.out) else None

    @property
    def out_path(self) -> Path | None:
        """The absolute path of what is written; None where tables go to a database."""
        return None if self.out is None or is_url(self.out) else Path(self.out).absolute()

    def recurring(self) -> Self:
        """The request with absolute paths, without outputs that a second run would find taken."""
        data = self.data.absolute() if self.data else None
        cleared = dict.fromkeys(("seed_sampling",) if self.replace else ("out", "seed_sampling"))
        return self.model_copy(update={"spec": self.spec.absolute(), "data": data} | cleared)

    def parameters(self) -> dict[str, Any]:
        """The arguments of the flow, as JSON values."""
        return {"request": self.model_dump(mode="json")}


def nest_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the release flow.

    The flat parameters of an earlier version become a request.
    """
    return dict(parameters) if "request" in parameters else {"request": dict(parameters)}
