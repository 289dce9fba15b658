"""A demographic extract: wide, with ugly names, codes of digits, empty columns, in a local dialect.

The file is Latin-1 with semicolons, decimal commas, moments with a T and several missing words, as
an office of a country would send it.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd

ZIPS, PROVIDERS, MISSING = 60, 25, ("NA", "?", "")

_LISTED = ("PLZ", "provider", "Telefon", "Straße, \"alt\" 'neu'", "Region", "REGION")
KINDS = {
    "1 id nr.": "text",
    **dict.fromkeys(_LISTED, "categorical"),
    **dict.fromkeys(("% Anteil", "Einkommen (Fr.)"), "float"),
    **dict.fromkeys(("age", "day", "birth year", "children"), "integer"),
    "erfasst am": "datetime",
    "geboren": "date",
    **dict.fromkeys(("verheiratet", "x-10 °C"), "boolean"),
}
"""The columns that are not numbered, and what a person would declare them to be."""

EMPTY = ("Bemerkung", "fax")
"""Columns without a value in any row."""


def extract(rows: int = 600, columns: int = 294, seed: int = 1) -> pd.DataFrame:
    """The texts of the file: named columns, empty ones, flags and measures up to ``columns``."""
    rng = np.random.default_rng(seed)
    named = _persons(rows, rng) | dict.fromkeys(EMPTY, [""] * rows)
    for number in range(columns - len(named)):
        make = (_flag, _share, _count, _code)[number % 4]
        named[f"{number:03d} %{make.__name__[1:]}"] = make(rows, rng)
    return pd.DataFrame(named)


def write_extract(frame: pd.DataFrame, path: Path) -> None:
    """Write the file in its dialect."""
    frame.to_csv(path, sep=";", index=False, encoding="latin-1")


def declare_draft(text: str, rows: int) -> str:
    """A draft as a person confirms it who takes every guess for public, and cites a source."""
    text = re.sub(r"^unconfirmed:.*\n", "", text, flags=re.MULTILINE)
    cited = 'provenance: "code book 2020, page 3"}'
    return text.replace("provenance: data-derived}", cited).replace(
        "{measured: true}", f"{{public: {rows}}}"
    )


def _persons(rows: int, rng: np.random.Generator) -> dict[str, list[str]]:
    zips = 1000 + 37 * rng.permutation(200)[:ZIPS]
    homes = rng.integers(0, ZIPS, rows)
    provider = rng.integers(0, PROVIDERS, rows)
    born = rng.integers(1935, 2010, rows)
    seen = np.datetime64("2019-01-01T08:00:00") + rng.integers(0, 10**8, rows)
    income = np.where(rng.random(rows) < 0.2, 0, rng.lognormal(10.5, 0.7, rows))
    region = ["Zürich", "Genève", "Ticino", "Graubünden"]
    return {
        "1 id nr.": _texts(500_001 + rng.permutation(rows)),
        "PLZ": _texts(zips[homes]),
        "provider": _texts(10_001 + 7 * provider),
        "Telefon": [f"0{441234567 + 11 * number}" for number in provider],
        "Straße, \"alt\" 'neu'": [f"Häuser; {number % 12}" for number in homes],
        "Region": [region[number % 4] for number in homes],
        "REGION": [region[number % 3].upper() for number in homes],
        "% Anteil": _holes([f"{share:.1f}" for share in 100 * rng.random(rows)], rng, 0),
        "Einkommen (Fr.)": _holes([f"{amount:.2f}" for amount in income], rng, 1),
        "age": _texts(2020 - born),
        "day": _texts(rng.integers(1, 32, rows)),
        "birth year": _texts(born),
        "children": _holes([f"{count}.0" for count in rng.poisson(1.3, rows)], rng, 0),
        "erfasst am": _holes(_texts(seen), rng, 1),
        "geboren": [f"{1 + n % 28:02d}.{1 + n % 12:02d}.{y}" for n, y in enumerate(born)],
        "verheiratet": ["ja" if flag else "nein" for flag in rng.random(rows) < 0.5],
        "x-10 °C": _flag(rows, rng),
    }


def _texts(values: np.ndarray) -> list[str]:
    return [str(value) for value in values]


def _holes(texts: list[str], rng: np.random.Generator, word: int) -> list[str]:
    """Texts with decimal commas, every tenth missing, mostly in the column's own word."""
    odd = rng.random(len(texts))
    words = [MISSING[word] if share < 0.08 else MISSING[2] for share in odd]
    return [
        word if share < 0.1 else text.replace(".", ",")
        for text, share, word in zip(texts, odd, words, strict=True)
    ]


def _flag(rows: int, rng: np.random.Generator) -> list[str]:
    return _texts((rng.random(rows) < 0.3).astype(int))


def _share(rows: int, rng: np.random.Generator) -> list[str]:
    return _holes([f"{share:.3f}" for share in rng.random(rows)], rng, 2)


def _count(rows: int, rng: np.random.Generator) -> list[str]:
    return _texts(rng.poisson(30, rows))


def _code(rows: int, rng: np.random.Generator) -> list[str]:
    return _texts(100 + rng.integers(0, 9, rows))
