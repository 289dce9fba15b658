"""Six kinds of sabotage in a release, each through three methods: the audit catches each.

A twin is the product with one thing patched: by a flaw of this kind a release would be less private
than its plan says. Each is caught with 95 % power, told by drawing the trials of the run again, at
a level of 5 % for all of the twins together; the same attacks raise no alarm without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from twins import TWINS

from cloister.audit.trials import Arena, Attack, shown
from cloister.benchmarks.pages.markdown import insert
from cloister.privacy.events import Relation
from cloister.tasks.home.process import code_version

pytestmark = pytest.mark.audit

TRIALS = 600
CASES = [(twin, method) for twin, each in TWINS.items() for method in each.methods]
LEVEL = 0.05 / len(CASES)
POWER = 0.95
AGAIN = 100


@pytest.fixture(scope="module")
def table():
    """The lines of the page, which is written where AUDIT_PAGE says, once the last one is known."""
    lines = [
        "| sabotage | method | releases | mu claimed | mu shown | chance | power |",
        "|-" * 7 + "|",
    ]
    yield lines
    print("\n" + "\n".join(lines))
    if page := os.environ.get("AUDIT_PAGE"):
        made = f"`make audit`, Cloister {code_version()}.\n\n"
        insert(Path(page), "twins", made + "\n".join(lines))


def trials_of(attack: Attack, folder, trials: int):
    arena = Arena(attack, folder)
    return arena.claim, list(arena.trials([index % 2 == 1 for index in range(trials)]))


def power(claim, trials, seed=1) -> float:
    """How often as many trials, drawn of these again, raise an alarm."""
    rng = np.random.default_rng(seed)
    sides = [[trial for trial in trials if trial.with_unit is side] for side in (False, True)]
    caught = 0
    for _ in range(AGAIN):
        drawn = [side[index] for side in sides for index in rng.integers(0, len(side), len(side))]
        caught += shown(claim, drawn).p_value < LEVEL
    return caught / AGAIN


@pytest.mark.parametrize(("twin", "method"), CASES)
def test_a_twin_is_caught(twin, method, tmp_path, monkeypatch, table):
    sabotage = TWINS[twin]
    attack = sabotage.attack(method)
    with monkeypatch.context() as patch:
        sabotage.patch(patch)
        claim, trials = trials_of(attack, tmp_path, sabotage.trials)
    seen = shown(claim, trials)
    caught = power(claim, trials)
    figures = f"{len(trials)} | {claim.mu:.3f} | {seen.mu:.3f} | {seen.p_value:.1e} | {caught:.2f}"
    table.append(f"| {twin} | {method} | {figures} |")
    assert seen.p_value < LEVEL
    assert caught >= POWER


@pytest.mark.parametrize("method", sorted({method for _, method in CASES}))
@pytest.mark.parametrize("relation", list(Relation))
def test_what_is_not_sabotaged_raises_no_alarm(method, relation, tmp_path):
    attacks = {
        sabotage.attack(method)
        for sabotage in TWINS.values()
        if method in sabotage.methods and sabotage.attack(method).relation is relation
    }
    for number, attack in enumerate(attacks):
        claim, trials = trials_of(attack, tmp_path / str(number), TRIALS)
        assert shown(claim, trials).p_value >= LEVEL
