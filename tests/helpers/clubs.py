"""The clubs: a small dataset with its spec, in a home of its own, and what a release of it left."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cloister.tasks.home.home import Home

ROWS = 2_000
"""Rows of the clubs, as their spec declares."""

CLUBS = """
name: clubs
source: {path: DATA}
privacy: {unit: row, relation: add_remove, rows: {public: 2000},
  budget: {epsilon: 4, delta: 1e-5, per: year}}
attributes:
  home region: {type: categorical, values: [north, south, east], provenance: map}
  capital: {type: categorical, values: [N, S, E], provenance: map}
  age: {type: integer, min: 18, max: 80, bins: 16, provenance: form}
  income:
    {type: integer, min: 0, max: 200, bins: 20, special: [0], nullable: true, provenance: form}
  member: {type: boolean, provenance: form}
constraints:
  - {name: region-capital, fd: "`home region` -> capital"}
  - {name: young, deny: "t.age < 20 and t.income > 0"}
release: {method: kamino, epsilon: 1, delta: 1e-6}
"""


@dataclass(frozen=True)
class Place:
    """A folder with a small dataset, its spec, and a home of its own."""

    folder: Path

    @property
    def spec(self) -> Path:
        return self.folder / "clubs.yaml"

    @property
    def data(self) -> Path:
        return self.folder / "clubs.csv"

    @property
    def home(self) -> Home:
        return Home.current({"CLOISTER_HOME": str(self.folder / "home")})

    def edit(self, old: str, new: str) -> None:
        """Change the text of the spec."""
        text = self.spec.read_text(encoding="utf-8")
        assert old in text
        self.spec.write_text(text.replace(old, new), encoding="utf-8")


@dataclass(frozen=True)
class Released:
    """A release of the clubs; what Prefect persisted meanwhile, and recorded of its steps."""

    place: Place
    id: str
    persisted: list[str]
    steps: dict[str, dict[str, Any]]

    @property
    def out(self) -> Path:
        return self.place.folder / "out"

    @property
    def folder(self) -> Path:
        return self.place.home.release(self.id)


def members() -> pd.DataFrame:
    """The sensitive table of the clubs."""
    rng = np.random.default_rng(3)
    region = rng.integers(0, 3, ROWS)
    age = rng.integers(18, 80, ROWS)
    income = pd.Series(np.where(age < 20, 0, rng.integers(1, 120, ROWS))).astype("Int64")
    return pd.DataFrame(
        {
            "home region": np.array(["north", "south", "east"])[region],
            "capital": np.array(["N", "S", "E"])[region],
            "age": age,
            "income": income.mask(rng.random(ROWS) < 0.1),
            "member": rng.random(ROWS) < 0.2 + 0.006 * (age - 18),
        }
    )


def clubs(folder: Path) -> Place:
    """The clubs in a folder."""
    place = Place(folder)
    members().to_csv(place.data, index=False)
    place.spec.write_text(CLUBS.replace("DATA", str(place.data)), encoding="utf-8")
    return place
