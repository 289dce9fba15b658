"""Valid names that are paths, alike or reserved in the stores: charged, and delivered."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger

ATTRIBUTES = ["../x", "a/../b", "a?b", "a!b", "..", "y" * 300, "{x}", "é\U0001f600", "Run ID", "-1"]
ROWS = 300


def write_spec(folder: Path, dataset: str, method: str) -> Path:
    rng = np.random.default_rng(5)
    columns = {name: rng.choice(["a", "b"], ROWS) for name in ATTRIBUTES}
    pd.DataFrame(columns).to_csv(folder / "data.csv", index=False)
    content = {
        "name": dataset,
        "source": {"path": str(folder / "data.csv")},
        "privacy": {
            "unit": "row",
            "relation": "add_remove",
            "rows": {"public": ROWS},
            "budget": {"epsilon": 4, "delta": "1e-4", "per": "ever"},
        },
        "attributes": {
            name: {"type": "categorical", "values": ["a", "b"], "provenance": "form"}
            for name in ATTRIBUTES
        },
        "release": {"method": method, "epsilon": 1, "delta": "1e-6"},
    }
    (folder / "spec.yaml").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return folder / "spec.yaml"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "method"),
    [
        ("Default", "independent"),
        *(
            pytest.param(name, method, marks=pytest.mark.slow)
            for name in ("0", "a..b")
            for method in ("independent", "dpview", "mixture", "kamino")
        ),
    ],
)
def test_a_release_with_hostile_names_is_delivered(preloaded, tmp_path, dataset, method) -> None:
    spec, said = write_spec(tmp_path, dataset, method), tmp_path / "said"
    settings = {"CLOISTER_HOME": str(tmp_path / "home")}
    commands = [["release", spec, "--out", tmp_path / "out", "--csv"], ["verify"]]
    preloaded.start(commands, settings, said)
    assert preloaded.ended(240) == 0, (said / "0.err").read_text()[-600:]
    assert [(said / f"{number}.code").read_text() for number in range(2)] == ["0", "0"]
    ledger = existing_ledger(Home.current(settings))
    assert ledger is not None
    (release,) = ledger.releases()
    assert (release.request.dataset, release.state.value) == (dataset, "candidate")
