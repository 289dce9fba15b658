"""Figures of docs/benchmarks/deniability.md: pass rates, classifiers, the distinguishing game."""

import os
import tempfile
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from census import census
from private_table import PrivateTable
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from cloister.evaluation.marginals import compare_marginals
from cloister.models.deniability.seeding import PLAUSIBLE_DENIABILITY
from cloister.models.protocol import fit, make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, task_of
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.privacy.mechanisms.selection import RandomisedTest
from cloister.privacy.queries.query import TableRows
from cloister.privacy.queries.seeded_records import PrefixLengths, SeededCandidates

pytestmark = pytest.mark.benchmark

ROWS = int(os.environ.get("CLOISTER_TEST_CENSUS", "120000"))
BUDGET = Budget(Fraction(1), Fraction(1, 2**30))
REPEATS = int(os.environ.get("CLOISTER_TEST_RELEASES", "3"))
PRIVATE = "differential-privacy"
NEVER = Fraction(1, 10**9)
OMEGAS = {"11": 11, "10": 10, "9": 9, "9 to 11": (9, 11), "5 to 11": (5, 11)}
BOX = ("least", "quarter", "half", "three quarters", "most")
# Rows that a classifier learns from, and is tested on.
LEARNT, TESTED = 20_000, 20_000


def encoded(rows, seed):
    shape = census(rows, seed)
    spec = shape.declared()
    task = task_of(spec, {spec.name: rows}).lead
    return task, task.domain.encode(
        shape.frame.astype({n: str for n in shape.frame if n not in ("age", "hours")})
    )


def released(method, task, table, folder):
    chosen = make_plan(create(method), task, BUDGET)
    with Journal.open(Path(folder), {"run": method}) as journal:
        door = PrivateTable(table, task.neighbours, chosen.event, journal, NoiseSource())
        return fit(create(method), door, task, chosen)


def features(table):
    codes = np.stack([table.codes[name] for name in table.domain.names], axis=1)
    return codes[:, :-1], codes[:, -1]


def classifiers(seed):
    return {
        "tree": DecisionTreeClassifier(min_samples_leaf=10, random_state=seed),
        "forest": RandomForestClassifier(60, min_samples_leaf=2, n_jobs=1, random_state=seed),
        "ada": AdaBoostClassifier(n_estimators=60, random_state=seed),
    }


def mean(values):
    values = np.array(values)
    return f"{100 * values.mean():.1f} ± {100 * values.std():.1f}"


@pytest.fixture(scope="module")
def data():
    task, table = encoded(ROWS, 1)
    _, other = encoded(LEARNT + TESTED, 2)
    return task, table, other


def of_variants(data, seed):
    """Rows of each method and omega, one release each."""
    task, table, _ = data
    drawn = {}
    with tempfile.TemporaryDirectory() as folder:
        for method in ("independent", "bayes"):
            place = Path(folder) / method
            place.mkdir()
            model = released(method, replace(task, guarantee=PRIVATE), table, place)
            drawn[method] = model.sample(LEARNT, SamplingSource(seed))
        for name, omega in OMEGAS.items():
            place = Path(folder) / name
            place.mkdir()
            options = {"resampled": omega}
            wanted = replace(
                task, guarantee=PLAUSIBLE_DENIABILITY, options=options, wanted_rows=LEARNT
            )
            model = released("deniability", wanted, table, place)
            drawn[f"omega {name}"] = model.sample(LEARNT, SamplingSource(seed))
    return drawn


@pytest.mark.timeout(7_200)
def test_classifiers_and_the_distinguishing_game(data):
    """Tables 3 and 5: accuracy, agreement with a classifier of real rows, telling rows apart."""
    task, table, other = data
    tested = other.take(np.arange(LEARNT, LEARNT + TESTED))
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(REPEATS):
        real = table.take(np.random.default_rng(seed).permutation(ROWS)[:LEARNT])
        sources = {"reals": other.take(np.arange(LEARNT)), **of_variants(data, seed)}
        x, y = features(tested)
        for name, own in classifiers(seed).items():
            reference = own.fit(*features(real)).predict(x)
            for source, rows in sources.items():
                said = own.fit(*features(rows)).predict(x)
                kept = found.setdefault(source, {})
                kept.setdefault(f"{name} accuracy", []).append(float((said == y).mean()))
                kept.setdefault(f"{name} agreement", []).append(float((said == reference).mean()))
                if name != "ada":
                    kept.setdefault(f"{name} told apart", []).append(told_apart(own, real, rows))
    print()
    measures = list(next(iter(found.values())))
    print("| | " + " | ".join(measures) + " |")
    print("|---" * (len(measures) + 1) + "|")
    for source, kept in found.items():
        print(f"| {source} | " + " | ".join(mean(kept[m]) for m in measures) + " |")
    forest = {source: np.mean(kept["forest accuracy"]) for source, kept in found.items()}
    assert forest["reals"] >= forest["omega 9"] > forest["independent"]


def told_apart(classifier, real, rows):
    """The share of rows, half of them real, of which a classifier says rightly whether they are."""
    both = [np.column_stack(features(some)) for some in (real, rows)]
    half = LEARNT // 2
    x, y = np.concatenate(both), np.repeat([0, 1], [len(b) for b in both])
    order = np.random.default_rng(0).permutation(len(x))
    learnt, tested = order[half:], order[:half]
    return float((classifier.fit(x[learnt], y[learnt]).predict(x[tested]) == y[tested]).mean())


@pytest.mark.timeout(3_600)
def test_distances_of_attributes_and_pairs(data):
    """Figures 3 and 4: total variation of each attribute and pair from real rows, as boxes."""
    _, table, other = data
    sources = {"reals": other.take(np.arange(LEARNT)), **of_variants(data, 1)}
    print("\n| | " + " | ".join(f"{way}: {part}" for way in ("one", "two") for part in BOX) + " |")
    print("|---" * (2 * len(BOX) + 1) + "|")
    middles = {}
    for source, rows in sources.items():
        boxes = [
            np.quantile([found.half_l1 for found in way.sets], [0, 0.25, 0.5, 0.75, 1])
            for way in compare_marginals(table, rows)[:2]
        ]
        print(f"| {source} | " + " | ".join(f"{v:.4f}" for box in boxes for v in box) + " |")
        middles[source] = boxes[1][2]
    assert middles["reals"] < middles["omega 9"] < middles["independent"]


@pytest.mark.timeout(3_600)
def test_pass_rates_and_speed(data):
    """Figures 5 and 6: candidates that pass by k and omega at gamma = 2, and a million of them."""
    task, table, _ = data
    with tempfile.TemporaryDirectory() as folder:
        options = {"guarantee": PLAUSIBLE_DENIABILITY, "options": {"resampled": 9}}
        model = released("deniability", replace(task, **options, wanted_rows=100), table, folder)
    ks = (10, 25, 50, 100, 150, 250)
    seeds = TableRows(table.take(np.arange(ROWS) % 2 == 0))
    print("\n| omega | " + " | ".join(f"k = {k}" for k in ks) + " |")
    print("|---" * (len(ks) + 1) + "|")
    rates = {}
    for name, omega in {**OMEGAS, "8": 8, "7": 7}.items():
        low, high = (omega, omega) if isinstance(omega, int) else omega
        query = SeededCandidates(
            model.network.network, PrefixLengths(11 - high, 11 - low), Fraction(2), 20_000, NEVER, 1
        )
        counts = query.exact(seeds, NoiseSource())[:, -1]
        rates[name] = [float((counts >= k).mean()) for k in ks]
        print(f"| {name} | " + " | ".join(f"{100 * rate:.1f}" for rate in rates[name]) + " |")
    assert rates["5 to 11"][ks.index(100)] > 0.5
    many = TableRows(table.take(np.random.default_rng(1).integers(0, ROWS, 735_000)))
    query = SeededCandidates(
        model.network.network, PrefixLengths(2, 2), Fraction(4), 1_000_000, NEVER, 1
    )
    start, cpu = time.perf_counter(), time.process_time()
    made = query.exact(many, NoiseSource())
    released_rows = RandomisedTest(50, Fraction(1), 29).release(
        made, query.sensitivity(task.neighbours), NoiseSource()
    )
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    print(
        f"\n1,000,000 candidates, 735,000 seeds: {seconds:.1f} s, of processor time {used:.1f} s, "
        f"{len(released_rows):,} passed"
    )
    assert used < 60
