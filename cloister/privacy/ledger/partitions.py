"""How growing data is divided into blocks, each of which has the budget of its account."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

from cloister.errors import InputError


@dataclass(frozen=True)
class Partition:
    """How an account of growing data is divided into blocks: by a date column, per month or year.

    ``form`` says how its cells are read: type and format. A row that two specs read otherwise would
    be in two blocks.
    """

    column: str
    form: str
    per: str

    def __post_init__(self) -> None:
        texts = (self.column, self.form)
        if self.per not in ("month", "year") or not all(isinstance(t, str) and t for t in texts):
            raise InputError("Blocks are of a column, per month or per year: name both.")

    def __str__(self) -> str:
        return f"{self.column} ({self.form}) per {self.per}"

    def names(self, block: str) -> bool:
        """Whether a block of this name may be: ``2026-10``, or ``2026``."""
        months = r"-(0[1-9]|1[0-2])" if self.per == "month" else ""
        return bool(re.fullmatch(r"[0-9]{4}" + months, block))

    @property
    def body(self) -> dict[str, str]:
        """The partition as JSON."""
        return {part.name: str(getattr(self, part.name)) for part in fields(self)}

    @classmethod
    def parse(cls, text: str) -> Self:
        """The partition that ``admitted (date) per month`` names, as ``str`` writes it.

        Errors: ``InputError`` if the text is of another form.
        """
        found = re.fullmatch(r"(.+) \((.+)\) per (month|year)", text)
        if found is None:
            raise InputError(
                f"'{text}' names no blocks: write COLUMN (TYPE) per month, or per year, with a "
                "declared format as COLUMN (TYPE, FORMAT)."
            )
        return cls(*found.groups())

    @classmethod
    def from_body(cls, body: Mapping[str, str]) -> Self:
        """The partition in ``body``, which may hold more."""
        return cls(*(body[part.name] for part in fields(cls)))
