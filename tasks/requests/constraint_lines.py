"""The line of a spec at which a constraint that cannot be used was declared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloister.errors import ConstraintError
from cloister.schema.spec_files.yaml_text import read_marked


@contextmanager
def constraints_in(path: Path) -> Iterator[None]:
    """Name file and line of a constraint that inside cannot be read or bound, where it is known.

    Raises:
        ConstraintError: that of inside.
    """
    try:
        yield
    except ConstraintError as error:
        if not error.keys:
            raise
        line = read_marked(path).line(error.keys)
        raise ConstraintError(f"{path.name}, line {line}, {error}", error.keys) from None
