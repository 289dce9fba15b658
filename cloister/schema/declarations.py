"""A constraint as a spec declares it: text, not yet bound to columns."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from cloister.schema.attributes import Declared

_FORMS = ("fd", "deny", "key", "file")


class ConstraintDeclaration(Declared):
    """One entry of ``constraints``: exactly one of ``fd``, ``deny``, ``key`` and ``file``.

    ``fd`` reads ``a, b -> c``; ``deny`` reads ``t1.x > t2.x and t1.y < t2.y``; ``key`` lists
    attributes that no two rows share; ``file`` is a HoloClean file beside the spec. Hard unless
    ``soft``.
    """

    name: str | None = Field(default=None, min_length=1)
    fd: str | None = Field(default=None, min_length=1)
    deny: str | None = Field(default=None, min_length=1)
    key: list[str] | None = Field(default=None, min_length=1)
    file: str | None = Field(default=None, min_length=1)
    soft: bool = False

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(getattr(self, form) is not None for form in _FORMS) != 1:
            raise ValueError(
                "a constraint has exactly one of fd, deny, key and file; keep one, split the others"
            )
        return self
