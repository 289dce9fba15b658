"""Sizes and counts of what a release shows or logs tell neighbouring tables apart by no classifier.

They follow from private answers, so that the plan's claim bounds them as well: at epsilon 0.5 the
area under the ROC curve of any classifier is 0.54 at most. The pages of a release (certificate,
report) are made of these answers and of public facts, and are left out; so is wall time, which is
not protected.
"""

import datetime as dt
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

from cloister.audit import trials
from cloister.audit.bounds import ranks
from cloister.audit.trials import Arena, Attack
from cloister.models.storage import save_model
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.tasks.data.tables import write_csv, write_table
from cloister.tasks.home.process import code_version
from cloister.tasks.requests.resolved import public_context_of


def late_imports():
    global insert
    from cloister.benchmarks.pages.markdown import insert


PAIRS = 100
MOST = 0.55
CLASSIFIERS = ("logistic", "forest")


def classifier_of(name):
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name == "forest":
        return RandomForestClassifier(min_samples_leaf=5, random_state=0)
    return make_pipeline(StandardScaler(), LogisticRegression())


class Weighed(Arena):
    """Each release is stored and drawn, and what that leaves is weighed: ``sizes`` of all."""

    def __init__(self, attack: Attack, folder: Path) -> None:
        super().__init__(attack, folder)
        self.folder = folder / "stored"
        self.sizes: list[list[int]] = []

    def release(self, source, rows, number, seen, previous):
        steps: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            create = trials.create
            told = lambda done, total: steps.extend((done, total))  # noqa: E731
            patch.setattr(trials, "create", lambda method: create(method, told))
            model, queries = super().release(source, rows, number, seen, previous)
        self.sizes.append([queries, len(steps), sum(steps), *self.stored(model)])
        return model, queries

    def stored(self, model) -> list[int]:
        request, name = self._requests[0], self.task.schema.lead
        spec = public_context_of(request).spec
        folder = save_model(self.folder, request.method, model, self.task, spec)
        drawn = model.sample(request.rows, SamplingSource(len(self.sizes)))
        table, csv = folder / "rows.parquet", folder / "rows.csv"
        write_table(drawn.tables[name], table)
        write_csv(table, csv, spec)
        sizes = [path.stat().st_size for path in sorted(folder.iterdir())]
        return [*sizes, drawn.tables[name].rows, len(model.post_processing())]


def told_apart(classifier, sizes, with_unit) -> tuple[float, float]:
    """The area under the ROC curve on releases not learnt from, and its lower bound at 95 %."""
    from sklearn.model_selection import cross_val_predict

    scores = cross_val_predict(
        classifier_of(classifier), sizes, with_unit, cv=10, method="predict_proba"
    )
    area, deviation = ranks(scores[~with_unit, 1], scores[with_unit, 1])
    return area, float(expit(logit(area) - 1.645 * deviation))


@pytest.fixture(scope="module")
def lines():
    """The rows of the page, which is written where AUDIT_PAGE says, once the last one is known."""
    rows = ["| method | releases | classifier | AUC | at least |", "|---|---|---|---|---|"]
    yield rows
    print("\n" + "\n".join(rows))
    if page := os.environ.get("AUDIT_PAGE"):
        today = dt.datetime.now(dt.UTC).date()
        made = f"`make audit`, Cloister {code_version()}, {today}.\n\n"
        insert(Path(page), "artefacts", made + "\n".join(rows))


@pytest.mark.audit
@pytest.mark.parametrize("method", ["mixture", "dpview+", "copula"])
def test_sizes_and_counts_tell_nothing(method, tmp_path, lines):
    arena = Weighed(Attack(method, epsilon="0.5"), tmp_path)
    with_unit = np.arange(2 * PAIRS) % 2 == 1
    assert len(list(arena.trials(with_unit.tolist()))) == len(arena.sizes)
    sizes = np.array(arena.sizes)
    found = {name: told_apart(name, sizes, with_unit) for name in CLASSIFIERS}
    for name, (area, least) in found.items():
        lines.append(f"| {method} | {len(sizes)} | {name} | {area:.3f} | {least:.3f} |")
    assert all(least <= MOST for _, least in found.values())


@pytest.mark.audit
@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_a_size_that_grows_with_the_rows_is_seen(classifier):
    """A number of bytes that one row more makes larger by one, beside nine that tell nothing."""
    rng, with_unit = np.random.default_rng(1), np.arange(2 * PAIRS) % 2 == 1
    sizes = rng.integers(2_000, 2_400, (2 * PAIRS, 10))
    assert told_apart(classifier, sizes, with_unit)[1] <= MOST
    sizes[:, 3] = 160 + with_unit
    assert told_apart(classifier, sizes, with_unit)[1] > 0.9
