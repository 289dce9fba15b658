"""The fictional country of the demo: 12 states, 80 cities, 300 zip codes; public and fixed.

Each zip code lies in one city, each city in one state.
"""

from __future__ import annotations

import numpy as np

STATE_NAMES = (
    "Aldermark",
    "Brenfell",
    "Corvane",
    "Dunmere",
    "Eastholm",
    "Farrow",
    "Glenmoor",
    "Harland",
    "Isenford",
    "Kestrel Bay",
    "Lorne",
    "Marrowdale",
)
_HEADS = ("Ash", "Birch", "Clay", "Elder", "Fern", "Grey", "Hazel", "Moss", "Oak", "Stone")
_TAILS = ("bridge", "burgh", "field", "ford", "haven", "mouth", "leigh", "wick")

CITIES = tuple(head + tail for tail in _TAILS for head in _HEADS)

_FIRST_ZIP = 10001
"""Number of the first zip code."""

_ZIP_COUNT = 300
"""Number of zip codes."""

CITY_STATE = np.sort(np.arange(len(CITIES)) % len(STATE_NAMES))
"""State number of each city, shape (80,)."""

_CITY_SIZE = 1.0 / np.sqrt(1 + np.arange(len(CITIES)) * 37 % len(CITIES))
"""Relative population of each city, shape (80,): a few large ones, many small ones."""

ZIP_CITY = np.sort(
    np.concatenate([np.arange(len(CITIES)), np.arange(_ZIP_COUNT - len(CITIES)) * 11 % len(CITIES)])
)
"""City number of each zip code, shape (300,)."""

ZIP_SHARE = (_CITY_SIZE / np.bincount(ZIP_CITY))[ZIP_CITY]
"""Relative population of each zip code, shape (300,)."""

ZIPS = tuple(str(_FIRST_ZIP + number) for number in range(_ZIP_COUNT))
