"""Releases of a table with and without one hostile row, by the command: no statistic differs.

Each half-line of each statistic is an event; how often it happens on either side gives a lower
bound of epsilon, by Clopper and Pearson, which exceeds the claimed one by chance with probability
below 1e-6 in all.
"""

import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import beta

pytestmark = pytest.mark.slow

# Releases of both tables together.
RELEASES = int(os.environ.get("CLOISTER_TEST_RELEASES", "200"))
EPSILON = 0.1
# By chance a single bound fails at most this often; there are fewer than 1000 of them.
CHANCE = 1e-10
ROWS = 2_000
OLD = "1600-06-15"


def spec_in(folder: Path) -> Path:
    content = {
        "name": "hostile",
        "source": {"path": str(folder / "plain.parquet")},
        "privacy": {
            "unit": "row",
            "relation": "add_remove",
            "rows": {"public": ROWS},
            "budget": {"epsilon": 1000, "delta": 0, "per": "ever"},
        },
        "attributes": {
            "day": {
                "type": "date",
                "min": "1500-01-01",
                "max": "2099-12-31",
                "bins": 6,
                "nullable": True,
            },
            "grade": {"type": "categorical", "values": ["1", "2", "3"], "nullable": True},
        },
        "validation": {"on_invalid": "clip"},
        "release": {"method": "independent", "epsilon": str(EPSILON), "delta": 0},
    }
    for keys in content["attributes"].values():
        keys["provenance"] = "form"
    (folder / "hostile.yaml").write_text(json.dumps(content), encoding="utf-8")
    return folder / "hostile.yaml"


def tables_in(folder: Path) -> tuple[Path, Path]:
    """A table, and the same with a row that once changed how all others were read.

    The row holds nanoseconds, and a half.
    """
    days = [OLD if at % 3 else "2020-01-01" for at in range(ROWS)]
    grades = [float(1 + at % 3) for at in range(ROWS)]
    paths = folder / "plain.parquet", folder / "hostile.parquet"
    pq.write_table(pa.table({"day": days, "grade": grades}), paths[0])
    pq.write_table(
        pa.table({"day": [*days, "2020-01-01 00:00:00.000000001"], "grade": [*grades, 7.5]}),
        paths[1],
    )
    return paths


def statistics(path: Path) -> list[float]:
    """Shares of missing and of common values in a synthetic table."""
    frame = pd.read_parquet(path)
    old = pd.to_datetime(frame["day"]).dt.year < 1700
    return [
        float(share)
        for share in (
            frame["day"].isna().mean(),
            frame["grade"].isna().mean(),
            old.mean(),
            frame["grade"].eq("1").mean(),
        )
    ]


def at_least(first: np.ndarray, second: np.ndarray) -> float:
    """A lower bound of epsilon from how often one event happened on neighbours."""
    hits, others, trials, against = int(first.sum()), int(second.sum()), len(first), len(second)
    low = float(beta.ppf(CHANCE, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.isf(CHANCE, others + 1, against - others)) if others < against else 1.0
    return math.log(low / high) if low else 0.0


def largest(plain: np.ndarray, hostile: np.ndarray) -> float:
    """The greatest epsilon that any half-line of any statistic (releases, k) shows."""
    found = [0.0]
    for column in range(plain.shape[1]):
        for point in np.linspace(0.025, 0.975, 39):
            for a, b in ((plain, hostile), (hostile, plain)):
                above = a[:, column] > point, b[:, column] > point
                found += [at_least(*above), at_least(~above[0], ~above[1])]
    return max(found)


@pytest.mark.timeout(7_200)
def test_one_hostile_row_cannot_be_seen_in_releases(prefect_server, tmp_path, monkeypatch):
    from cloister.flows.cli.app import run

    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    spec, paths = spec_in(tmp_path), tables_in(tmp_path)
    found: tuple[list[list[float]], list[list[float]]] = ([], [])
    for number in range(RELEASES):
        out = tmp_path / f"out-{number}"
        command = [
            "release",
            str(spec),
            "--data",
            str(paths[number % 2]),
            "--out",
            str(out),
            "--evaluate",
            "none",
        ]
        assert run(command) == 0
        found[number % 2].append(statistics(out / "synthetic.parquet"))
    plain, hostile = np.array(found[0]), np.array(found[1])
    print(
        f"\n{RELEASES} releases: epsilon {largest(plain, hostile):.3f} is shown, "
        f"{EPSILON} is claimed"
    )
    print("means", plain.mean(axis=0).round(3), hostile.mean(axis=0).round(3))
    assert largest(plain, hostile) <= EPSILON


def test_what_the_row_once_did_would_be_seen():
    """A third of all days missing on one side only, as the reading of whole columns made them."""
    rng = np.random.default_rng(5)
    plain, hostile = (base + 0.02 * rng.standard_normal((100, 1)) for base in (0.01, 0.66))
    assert largest(plain, hostile) > 1
