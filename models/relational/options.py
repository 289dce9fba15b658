"""Options of relationships in a spec; what is left out follows from public facts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cloister.schema.attributes import Declared
from cloister.schema.declarations import DeclaredEpsilon, Exact


class RelationalOptions(Declared):
    """The options of methods of several tables."""

    table_method: str | None = Field(default=None, description="makes the rows of each table")
    epsilon: DeclaredEpsilon | None = Field(
        default=None,
        description="of all relationships alone, at the delta of the release; tables have the rest",
    )
    rounds: int | None = Field(
        default=None, ge=1, description="T, in each of which joint tables are selected and measured"
    )
    workloads: int | None = Field(default=None, ge=1, description="K, the joint tables of a round")
    alpha: Annotated[Exact, Field(gt=0, lt=1)] | None = Field(
        default=None, description="the part of a round's budget for its selection"
    )
    ways: Literal[2, 3] | None = Field(default=None, description="attributes of a joint table")


class PrintedOptions(RelationalOptions):
    """The options of the algorithm as printed."""

    fitted: int | None = Field(
        default=None, ge=1, description="joint tables fitted at once, those of greatest error"
    )
    slice: int | None = Field(
        default=None, ge=2, description="rows on each side of a random part of the matrix"
    )
    slices: int | None = Field(default=None, ge=1, description="parts fitted in a round")
