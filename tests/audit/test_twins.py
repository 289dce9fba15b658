"""Six kinds of sabotage in a release, each through three methods: the audit catches each.

A twin is the product with one thing patched: by a flaw of this kind a release would be less private
than its plan says. Each is caught with 95 % power, told by drawing the trials of the run again, at
a level of 5 % for all of the twins together; the same attacks raise no alarm without it.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import numpy as np
import pytest
from twins import TWINS

from cloister.audit.trials import Arena, Attack, shown
from cloister.benchmarks.pages.markdown import insert_sections
from cloister.tasks.home.process import code_version

pytestmark = pytest.mark.audit

CASES = [(twin, method) for twin, each in TWINS.items() for method in each.methods]
LEVEL = 0.05 / len(CASES)
POWER = 0.95
AGAIN = 100


HEADINGS = (
    *("method", "relation", "epsilon", "releases", "mu claimed", "mu shown", "nearer", "chance"),
    "power",
)


@pytest.fixture(scope="module")
def sections():
    """The rows of each sabotage; those of this run go into the page that AUDIT_PAGE names."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    yield rows
    today = dt.datetime.now(dt.UTC).date()
    texts = []
    for sabotage, each in rows.items():
        lines = (f"| {' | '.join(row)} |" for row in (HEADINGS, ["---"] * len(HEADINGS), *each))
        made = f"Cloister {code_version()}, {today}.\n\n"
        texts.append(f"### {sabotage}\n\n{made}" + "\n".join(lines))
    print("\n" + "\n\n".join(texts))
    if page := os.environ.get("AUDIT_PAGE"):
        insert_sections(Path(page), "twins", texts)


def row(attack: Attack, claim, seen, power: str) -> tuple[str, ...]:
    where = attack.method, str(attack.relation), attack.epsilon
    figures = f"{claim.mu:.3f}", f"{seen.mu:.3f}", f"{seen.nearer:.1f}", f"{seen.p_value:.1e}"
    return *where, str(seen.trials), *figures, power


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
def test_a_twin_is_caught(twin, method, tmp_path, monkeypatch, sections):
    sabotage = TWINS[twin]
    attack = sabotage.attack(method)
    with monkeypatch.context() as patch:
        sabotage.patch(patch)
        claim, trials = trials_of(attack, tmp_path, sabotage.trials)
    seen = shown(claim, trials)
    caught = power(claim, trials)
    sections.setdefault(twin, []).append(row(attack, claim, seen, f"{caught:.2f}"))
    assert seen.p_value < LEVEL
    assert caught >= POWER


def attacks() -> dict[Attack, int]:
    """Each attack by which a twin is looked for, and the most trials of it."""
    most: dict[Attack, int] = {}
    for twin, method in CASES:
        attack = TWINS[twin].attack(method)
        most[attack] = max(most.get(attack, 0), TWINS[twin].trials)
    return most


@pytest.mark.parametrize("attack", attacks(), ids=str)
def test_what_is_not_sabotaged_raises_no_alarm(attack, tmp_path, sections):
    claim, trials = trials_of(attack, tmp_path, attacks()[attack])
    seen = shown(claim, trials)
    sections.setdefault(f"no sabotage, {attack.relation}", []).append(row(attack, claim, seen, ""))
    assert seen.p_value >= LEVEL
