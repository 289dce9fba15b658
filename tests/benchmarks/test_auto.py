"""How much worse `auto` is than the best registered method, measure by measure: its regret."""

import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from shape import release_rows

from cloister.errors import PlanError
from cloister.evaluation.classifiers import detect
from cloister.evaluation.learning import TrainTestSplit, synthetic_training_rows, train_and_test
from cloister.evaluation.marginals import compare_marginals
from cloister.evaluation.targets import targets_of
from cloister.models.registry import choose_method
from cloister.models.task import Budget
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema.spec_files.loading import load_spec

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(14_400)]  # seconds
SPECS = Path(__file__).resolve().parents[2] / "data" / "specs"
ROWS = int(os.environ.get("CLOISTER_TEST_ROWS", "2000"))
RELEASES = int(os.environ.get("CLOISTER_TEST_RELEASES", "1"))
EPSILONS = ("0.1", "0.2", "0.5", "1", "5")
METHODS = {
    "1e-6": ("mixture", "kamino", "bayes", "copula", "independent"),
    "0": ("mixture", "dpview+", "dpview", "independent"),
}  # by delta: those that any table of ours has a plan of
TABLES = {
    "adult": "adult.csv",
    "br2000": "br2000.csv",
    "tax": "tax30k.csv",
    "tpch": "tpch_order.csv",
}
TARGETS = 3  # declared targets that classifiers learn, evenly spaced
LEARNT = 1_000  # synthetic rows that classifiers learn from
GREATER_IS_BETTER = {"F1"}


@pytest.mark.parametrize("delta", METHODS)
@pytest.mark.parametrize("name", TABLES)
def test_regret_of_auto(record, real_table, name, delta):
    real = some_rows(real_table(name, TABLES[name]))
    declared = targets_of(load_spec(SPECS / f"{name}.yaml").evaluation.targets, real.table.domain)
    chosen = np.linspace(0, len(declared) - 1, TARGETS).astype(int)
    targets = [declared[at] for at in chosen]
    budgets = [Budget(Fraction(epsilon), Fraction(delta)) for epsilon in EPSILONS]
    lines = [line for budget in budgets for line in lines_of(real, targets, budget, METHODS[delta])]
    record(
        f"auto-{name}-{delta}",
        f"{name}, {real.table.rows:,} rows, delta {delta}, releases of each method: {RELEASES}",
        ("epsilon", "measure", *METHODS[delta], "auto", "regret"),
        lines,
    )
    assert lines


def some_rows(real):
    """As many of the rows as the benchmark takes, without the soft constraints."""
    chosen = np.random.default_rng(0).permutation(real.table.rows)[:ROWS]
    task = replace(real.task, constraints=real.task.hard, data_rows=len(chosen))
    return replace(real, table=real.table.take(chosen), task=task)


def lines_of(real, targets, budget, methods):
    """One line for each measure: the mean of each method, what `auto` means, and its regret.

    None where no method has a plan.
    """
    try:
        chosen = choose_method(real.task, budget).method
    except PlanError:
        return
    found = {}
    for method in methods:
        try:
            every = [measures(real, targets, method, budget) for _ in range(RELEASES)]
        except PlanError:
            continue
        found[method] = {key: float(np.mean([one[key] for one in every])) for key in every[0]}
        print(float(budget.epsilon), method, found[method], flush=True)
    for measure in found[chosen]:
        values = {method: own[measure] for method, own in found.items()}
        best = max(values.values()) if measure in GREATER_IS_BETTER else min(values.values())
        cells = [f"{values[method]:.3f}" if method in values else "no plan" for method in methods]
        yield (
            f"{float(budget.epsilon):g}",
            measure,
            *cells,
            chosen,
            f"{abs(values[chosen] - best):.3f}",
        )


def measures(real, targets, method, budget):
    rows, noise = (real.table, real.task), NoiseSource()
    drawn = release_rows(*rows, budget.epsilon, method, budget.delta, noise).synthetic
    _, two, three = compare_marginals(real.table, drawn)
    tested = TrainTestSplit.of(real.table).test
    rows = synthetic_training_rows(drawn)
    learnt = train_and_test(rows.take(np.arange(min(rows.rows, LEARNT))), tested, targets)
    return {
        "2-way": two.half_l1,
        "3-way": three.half_l1,
        "F1": learnt.f1,
        "detection": detect(real.table, drawn).auc,
    }
