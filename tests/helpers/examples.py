"""How many examples a costly law draws: all in the nightly suite, a third of them by default."""

from __future__ import annotations

from hypothesis import settings


def examples(most: int) -> int:
    """Of so many examples those that the profile draws."""
    return most if settings.get_current_profile_name() == "nightly" else -(-most // 3)
