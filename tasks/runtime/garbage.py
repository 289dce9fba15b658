"""How often Python looks for garbage that reference counts do not free."""

from __future__ import annotations

SELDOM = 200_000
"""Objects made since the last search, for the next.

Loading the libraries of a release makes millions that stay: at Python's own 700, a third of the
time of loading them goes into searching them again and again.
"""
