"""Several files, drafted as tables, corrected by a person and released by the command line."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.flows.cli.app import run

ROWS = {"clients": 300, "goods": 150, "orders": 1_500}
ORPHANS = 12


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """Clients under numbers, goods under texts, and orders of both without a header."""
    rng = np.random.default_rng(11)
    numbers = np.sort(rng.choice(9_000, ROWS["clients"], replace=False) + 1_000)
    goods = np.array([f"G-{number:03d}" for number in range(ROWS["goods"])])
    buyer = rng.choice(numbers, ROWS["orders"])
    buyer[:ORPHANS] = 20
    clients = {
        "Client No": numbers,
        "born": rng.integers(1940, 2005, len(numbers)),
        "sex": rng.choice(["f", "m", "NA"], len(numbers), p=[0.5, 0.45, 0.05]),
    }
    frames = {
        "orders": pd.DataFrame(
            {0: np.arange(1_001, 2_501), 1: buyer, 2: rng.choice(goods, 1_500)}
        ).assign(pieces=rng.integers(1, 9, 1_500)),
        "clients": pd.DataFrame(clients),
        "goods": pd.DataFrame({"code": goods, "price": rng.integers(100, 9_999, len(goods)) / 100}),
    }
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False, header=name != "orders")
    return [tmp_path / f"{name}.csv" for name in frames]


def declared(text: str) -> str:
    """The draft as a person declares it."""
    text = re.sub(r"unconfirmed:.*\n", "", text).replace("data-derived", "the form")
    for name in ("goods", "orders"):
        head, rest = text.split(f"\n  {name}:\n")
        text = f"{head}\n  {name}:\n" + rest.replace(
            "{measured: true}", f"{{public: {ROWS[name]}}}", 1
        )
    return text.replace("{measured: true}", f"{{public: {ROWS['clients']}}}").replace(
        "epsilon: 1,", "epsilon: 6,"
    )


@pytest.mark.slow
def test_a_draft_of_several_files_is_released(
    prefect_server, brief_training, files, tmp_path, cloister, monkeypatch
):
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    spec = tmp_path / "shop.yaml"
    cloister("spec", "draft", *files, "--out", spec)
    text = spec.read_text(encoding="utf-8")
    assert "{table: clients}" in text
    assert f"c2: {ORPHANS} of 1,500 rows name no row of clients" in text
    assert run(["release", str(spec), "--out", str(tmp_path / "early")]) == 2
    spec.write_text(declared(text), encoding="utf-8")
    cloister("spec", "check", spec)
    out = tmp_path / "out"
    cloister("release", spec, "--out", out, "--evaluate", "none")
    clients, goods, orders = (
        pd.read_parquet(out / f"{name}.parquet") for name in ("clients", "goods", "orders")
    )
    assert len(clients) == ROWS["clients"]
    assert orders["c2"].isin(clients["Client No"]).all()
    assert orders["c3"].isin(goods["code"]).all()
    assert 0.5 * ROWS["orders"] < len(orders) <= ROWS["orders"]
