"""How many examples a costly law draws: all in the nightly suite, a third of them by default."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def examples(most: int) -> int:
    """Of so many examples those that the profile draws."""
    return most if settings.get_current_profile_name() == "nightly" else -(-most // 3)


def few(cases: Iterable[Any], most: int) -> list[Any]:
    """The cases of a law, of which the default suite tries so many, evenly spread."""
    listed = list(cases)
    kept = {round(each * (len(listed) - 1) / max(most - 1, 1)) for each in range(most)}
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if number in kept else [pytest.mark.slow],
        )
        for number, case in enumerate(listed)
    ]
