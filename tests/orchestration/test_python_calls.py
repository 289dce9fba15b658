"""Cloister in a notebook: what calls give back as text, what they say of wrong arguments."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from receiver import receive

import cloister
from cloister.errors import CloisterError, ColumnsError, InputError, PlanError, SpecError
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger

CLINIC = """
name: clinic
source: {path: clinic.csv}
privacy: {unit: row, relation: add_remove, rows: {public: 400},
  budget: {epsilon: 9, delta: 1e-3, per: year}}
attributes:
  ward: {type: categorical, values: [north, south, east], provenance: house plan}
  age: {type: integer, min: 0, max: 99, bins: 20, provenance: in years}
  urgent: {type: boolean, true: "1", false: "0", provenance: form}
release: {epsilon: 4, delta: 0, method: independent}
"""


@pytest.fixture
def clinic(folder) -> pd.DataFrame:
    """The rows of a notebook whose folder holds their spec."""
    Path("clinic.yaml").write_text(CLINIC)
    rng = np.random.default_rng(1)
    columns = {"ward": rng.choice(["north", "south", "east"], 400), "age": rng.integers(0, 99, 400)}
    return pd.DataFrame(columns | {"urgent": rng.integers(0, 2, 400)})


WRONG = {
    "an array": (lambda rows: cloister.release("clinic.yaml", rows.to_numpy()), InputError,
                 "data is of type ndarray; give the path of a file, or a pandas DataFrame"),
    "an array to measure": (lambda rows: cloister.evaluate("clinic.yaml", rows, rows.to_numpy()),
                            InputError, "synthetic is of type ndarray"),
    "a spec that is no path": (lambda rows: cloister.plan({"name": "clinic"}), InputError,
                               "spec is of type dict; give the path of a file"),
    "a negative epsilon": (lambda rows: cloister.release("clinic.yaml", rows, epsilon=-1),
                           InputError, "should be above 0; give a positive one with epsilon"),
    "a plan without epsilon": (lambda rows: cloister.plan("clinic.yaml", epsilon=0), PlanError,
                               "give a positive one with epsilon"),
    "a seed": (lambda rows: cloister.release("clinic.yaml", rows, seed_sampling=-3), InputError,
               "give another one with seed_sampling"),
    "a level": (lambda rows: cloister.evaluate("clinic.yaml", rows, rows, level="some"),
                InputError, "level should be one of 'none', 'quick', 'full'"),
    "a level of a release": (lambda rows: cloister.release("clinic.yaml", rows, evaluate="some"),
                             InputError, "evaluate: input should be 'none', 'quick' or 'full'"),
    "a sampling": (lambda rows: cloister.plan("clinic.yaml", sampling="some"), InputError,
                   "sampling: input should be 'supports' or 'sequential'"),
    "an empty place": (lambda rows: cloister.release("clinic.yaml", rows, out=""), CloisterError,
                       "give another folder with out"),
    "no earlier release": (lambda rows: cloister.release("clinic.yaml", rows, prior=""),
                           InputError, "prior names a release"),
    "a missing column": (lambda rows: cloister.release("clinic.yaml", rows.drop(columns="age")),
                         ColumnsError, "the frame data: the declared column(s) 'age' are missing"),
    "a column too many": (lambda rows: cloister.evaluate("clinic.yaml", rows, rows.assign(x=1)),
                          ColumnsError, "the frame synthetic: the column(s) 'x' are not declared"),
    "an approval without a reason": (lambda rows: cloister.approve("r-1", " "), InputError,
                                     "an approval needs a reason"),
}  # fmt: skip
"""What a person may write by mistake, and what is said."""


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_told_in_the_words_of_python_before_anything_is_charged(clinic, mistake):
    call, kind, said = WRONG[mistake]
    with pytest.raises(kind) as caught:
        call(clinic)
    message = str(caught.value)
    assert said in message
    assert "--" not in message and "parquet" not in message
    assert existing_ledger(Home.current()) is None


def test_a_draft_is_checked_and_planned(clinic):
    clinic.to_csv("clinic.csv", index=False)
    drafted = cloister.draft("clinic.csv", out="draft.yaml")
    assert drafted.text == Path("draft.yaml").read_text()
    with pytest.raises(SpecError, match="unconfirmed"):
        cloister.check("draft.yaml")
    checked, forecast = cloister.check("clinic.yaml"), cloister.plan("clinic.yaml")
    assert checked.without_a_source == ("privacy.rows",)
    assert repr(drafted) == f"DraftResult(lines={drafted.text.count(chr(10))}, file='draft.yaml')"
    assert repr(checked) == (
        "CheckResult(name='clinic', attributes=3, hard_constraints=0, soft_constraints=0)"
    )
    assert repr(forecast) == (
        f"PlanSummary(method='independent', rows=400, epsilon=4, seconds={forecast.seconds})"
    )
    assert repr(forecast.spend) == "SpendSummary(stages=1, epsilon=4, delta=0)"


@pytest.mark.slow
def test_a_notebook_goes_from_a_draft_to_approved_rows(clinic, prefect_server):
    clinic.to_csv("clinic.csv", index=False)
    drafted = cloister.draft("clinic.csv").text.replace("{measured: true}", "{public: 400}")
    lines = [line for line in drafted.splitlines() if not line.startswith("unconfirmed")]
    Path("draft.yaml").write_text("\n".join(lines))
    measured = cloister.measure("draft.yaml", clinic, epsilon=3, out="people.yaml")
    assert cloister.check(measured.spec).facts["attributes"] == 3
    released = cloister.release("clinic.yaml", clinic, evaluate="none")
    assert released.frame.dtypes.equals(clinic.dtypes)
    assert receive(released.folder).returncode == 0
    figures = cloister.evaluate("clinic.yaml", clinic, released.frame)
    assert figures.evaluation.warnings == ()
    approved = cloister.approve(released.id, "certificate read", by="A. Officer")
    assert repr(approved) == f"ReviewResult(id='{released.id}', state='approved')"
    model = cloister.load(released.id)
    assert model.sample(5, seed=1).dtypes.equals(clinic.dtypes)
    results = (measured, released, figures, approved, model)
    texts = [repr(result).replace(str(Path.cwd()), "") for result in results]
    assert all(len(text) < 120 and "\n" not in text for text in texts)
    assert repr(figures).startswith("EvaluationResult(level='quick', measures=")
