"""Problems of data that cannot be used: written in the home alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cloister.errors import ColumnsError, DataError
from cloister.tasks.runtime.files import write_json
from cloister.tasks.runtime.home import Home

_ResultT = TypeVar("_ResultT")

CHARGED_NOTHING = "this run charged nothing"
"""The end of each refusal of data; an earlier run of the same release may have charged it."""


def usable(opened: Callable[[], _ResultT], release: str, home: Home) -> _ResultT:
    """The result of ``opened()``.

    Raises:
        ColumnsError: the columns are not those declared; names them.
        DataError: the data cannot be used; names the file with the details, and none of them.

    Privacy: counts and row numbers are exact facts about the data, and what a step raises is sent
    to the orchestrator. Names of columns depend on no row.
    """
    try:
        return opened()
    except ColumnsError as error:
        write_validation(release, {"refused": True, "problems": [str(error)]}, home)
        raise ColumnsError(f"{error}; {CHARGED_NOTHING}") from None
    except DataError as error:
        problems = str(error).splitlines()
    path = write_validation(release, {"refused": True, "problems": problems}, home)
    raise DataError(
        f"the data is not as the spec declares it; {path} says what is wrong (internal only; do "
        f"not share); {CHARGED_NOTHING}"
    )


def write_validation(release: str, content: dict[str, Any], home: Home) -> Path:
    """Write the findings on the data of a release, readable by their owner alone; internal."""
    return write_json(home.release(release) / "internal" / "validation.json", content)
