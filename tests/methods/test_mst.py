"""MST, a method outside of models/, from plan to certificate; docs/architecture.md quotes it."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from private_table import PrivateTable

from cloister.constraints.counting import count_violations
from cloister.evaluation.marginals import compare_sets
from cloister.flows.cli.app import run
from cloister.models.protocol import fit, make_plan
from cloister.models.registry import METHODS, Deferred, create
from cloister.models.task import Budget, task_of
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.spec import Spec
from cloister.tasks.home.home import Home
from cloister.tasks.release.verify import verify_records

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS = 4_000

SPEC = f"""
name: towns
source: {{path: towns.csv}}
privacy: {{unit: row, relation: add_remove, rows: {{public: {ROWS}}},
  budget: {{epsilon: 4, delta: 1e-5, per: year}}}}
attributes:
  town: {{type: categorical, values: [A, B, C, D, E, F, G, H], provenance: map}}
  state: {{type: categorical, values: [x, y, z], provenance: map}}
  grade: {{type: ordinal, values: [low, mid, high], provenance: scale}}
  wage: {{type: integer, min: 0, max: 399, bins: 20, provenance: form}}
  tax: {{type: integer, min: 0, max: 79, bins: 16, provenance: form}}
constraints:
  - {{name: town-state, fd: "town -> state"}}
  - {{name: tax rises, deny: "t1.wage > t2.wage and t1.tax < t2.tax"}}
release: {{method: mst, epsilon: 1, delta: 1e-6}}
"""


def towns() -> pd.DataFrame:
    """Rows in which the wage follows the town, and tax and grade follow the wage."""
    rng = np.random.default_rng(1)
    town = rng.integers(0, 8, ROWS)
    wage = np.clip(rng.normal(60 + 35 * town, 40), 0, 399).astype(int)
    grade = np.clip((wage + rng.normal(0, 40, ROWS)) // 134, 0, 2).astype(int)
    return pd.DataFrame(
        {
            "town": np.array(list("ABCDEFGH"))[town],
            "state": np.array(list("xyz"))[town // 3],
            "grade": np.array(["low", "mid", "high"])[grade],
            "wage": wage,
            "tax": wage // 5,
        }
    )


@pytest.fixture(scope="module", autouse=True)
def registered():
    """MST is a method while these tests run, as by a line in models/registry.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "mst", Deferred("mst", "mst"))
        yield


def fitted(name, folder):
    """The method, its task, its plan, the door when all is answered, the model, the real rows."""
    spec = Spec.declared_in(Path(), yaml.safe_load(SPEC))
    task, method = task_of(spec, {spec.name: ROWS}).lead, create(name)
    real = task.domain.encode(towns())
    plan = make_plan(method, task, Budget(Fraction(1), Fraction(1, 10**6)))
    journal = Journal.open(folder, {"run": name})
    door = PrivateTable(real, task.neighbours, plan.event, journal, NoiseSource.insecure(5))
    return method, task, plan, door, fit(method, door, task, plan), real


@pytest.fixture(scope="module")
def mst(registered, tmp_path_factory):
    return fitted("mst", tmp_path_factory.mktemp("mst"))


@pytest.fixture(scope="module")
def drawn(mst):
    return mst[4].sample(ROWS, SamplingSource(1))


def test_what_was_planned_is_answered_and_nothing_else(mst):
    _, _, plan, door, _, _ = mst
    assert [stage.name for stage in plan.stages] == ["histograms", "tree", "pairs"]
    assert dict(door.plan_budget.remaining) == {}


def test_no_row_breaks_a_dependency_or_an_order_rule(mst, drawn):
    assert [count_violations(rule, drawn) for rule in mst[1].hard] == [0, 0]


def test_pairs_of_the_tree_are_far_nearer_than_of_attributes_alone(mst, drawn, tmp_path):
    *_, model, real = mst
    pairs = [table.names for table in model.tables]
    assert {name for pair in pairs for name in pair} == set(model.sequence)
    alone = fitted("independent", tmp_path)[4].sample(ROWS, SamplingSource(1))
    of_tree, of_none = (
        np.mean([marginal.half_l1 for marginal in compare_sets(real, rows, pairs)])
        for rows in (drawn, alone)
    )
    assert of_tree < of_none / 2


def test_a_restored_model_draws_the_same_rows(mst, drawn):
    method, task, _, _, model, _ = mst
    meta, arrays = model.state()
    again = method.restore(task, json.loads(json.dumps(meta)), arrays)
    assert again.post_processing() == model.post_processing()
    assert again.sample(ROWS, SamplingSource(1)).frame().equals(drawn.frame())


@pytest.mark.slow
def test_a_release_is_charged_certified_approved_and_sampled(
    tmp_path, monkeypatch, prefect_server, capsys
):
    home = tmp_path / "home"
    monkeypatch.setenv("CLOISTER_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    towns().to_csv("towns.csv", index=False)
    Path("towns.yaml").write_text(SPEC, encoding="utf-8")
    assert run(["release", "towns.yaml", "--evaluate", "none", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["method"], said["epsilon"], said["budget_left"]) == ("mst", "1", "3")
    public = home / "releases" / said["release"] / "public"
    certificate = (public / "certificate.yaml").read_text(encoding="utf-8")
    assert "given its parent in a tree" in certificate
    assert verify_records(Home.current(), None)[1] == []
    assert run(["review", "approve", said["release"], "--reason", "fine"]) == 0
    assert run(["sample", said["release"], "--rows", "50", "--out", "more.csv"]) == 0
    more = pd.read_csv("more.csv")
    assert len(more) == 50
    assert more.groupby("town")["state"].nunique().max() == 1


@pytest.mark.slow
def test_the_laws_of_all_methods_hold():
    laws = [f"tests/laws/{name}.py" for name in ("test_synthesizer_laws", "test_certificate_laws")]
    words = [sys.executable, "-m", "pytest", "-p", "mst_registered", *laws, "-k", "mst", "-m", ""]
    paths = os.pathsep.join(map(str, (HERE, ROOT)))
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_code_of_the_page_is_that_of_the_file():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("\n## Add a method\n")[2].partition("\n## ")[0]
    quoted = [block.partition("```")[0] for block in section.split("```python\n")[1:]]
    files = (HERE / name for name in ("mst.py", "mst_registered.py"))
    code = "".join(file.read_text(encoding="utf-8") for file in files)
    assert len(quoted) >= 4
    assert [block for block in quoted if block not in code] == []
