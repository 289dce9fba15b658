"""Ten kinds of sabotage in a release, each through three methods: the audit catches each.

A twin is the product with one thing patched: by a flaw of this kind a release would be less private
than its plan says. Each is caught with 95 % power, told by drawing the trials of the run again, at
a level of 5 % for all of the twins together; the same attacks raise no alarm without it.
"""

import datetime as dt
import os
import re
from pathlib import Path

import numpy as np
import pytest
from twins import TWINS

from cloister.audit.trials import Arena, Attack, shown
from cloister.tasks.home.process import code_version


def late_imports():
    global draw_power, insert_sections
    from cloister.benchmarks.pages.audit_plots import draw_power
    from cloister.benchmarks.pages.markdown import insert_sections


pytestmark = pytest.mark.audit

CASES = [(twin, method) for twin, each in TWINS.items() for method in each.methods]
LEVEL = 0.05 / len(CASES)
POWER = 0.95
AGAIN = 100
LEAST = 10


HEADINGS = (
    *("method", "relation", "epsilon", "releases", "mu claimed", "mu shown", "nearer", "chance"),
    "power",
)


@pytest.fixture(scope="module")
def sections():
    """The rows of each sabotage; those of this run go into the page that AUDIT_PAGE names."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    powers: dict[str, dict[str, dict[int, float]]] = {}
    yield rows, powers
    today = dt.datetime.now(dt.UTC).date()
    texts, page = [], os.environ.get("AUDIT_PAGE")
    for sabotage, each in rows.items():
        lines = (f"| {' | '.join(row)} |" for row in (HEADINGS, ["---"] * len(HEADINGS), *each))
        made = f"Cloister {code_version()}, {today}.\n\n"
        texts.append(f"### {sabotage}\n\n{made}" + "\n".join(lines))
        if page and sabotage in powers:
            name = f"images/audit-power-{slug(sabotage)}.png"
            texts[-1] += f"\n\n![power by the number of releases]({name})"
            draw_power(powers[sabotage], POWER, Path(page).parent / name)
    print("\n" + "\n\n".join(texts))
    if page:
        insert_sections(Path(page), "twins", texts)


def slug(sabotage: str) -> str:
    return re.sub("[^a-z]+", "-", sabotage.replace("'", ""))


def row(attack: Attack, claim, seen, power: str) -> tuple[str, ...]:
    where = attack.method, str(attack.relation), attack.epsilon
    figures = f"{claim.mu:.3f}", f"{seen.mu:.3f}", f"{seen.nearer:.1f}", f"{seen.p_value:.1e}"
    return *where, str(seen.trials), *figures, power


def trials_of(attack: Attack, folder, trials: int):
    arena = Arena(attack, folder)
    return arena.claim, list(arena.trials([index % 2 == 1 for index in range(trials)]))


def power(claim, trials, releases: int, seed=1) -> float:
    """How often so many trials, drawn of these again, raise an alarm."""
    rng = np.random.default_rng(seed)
    sides = [[trial for trial in trials if trial.with_unit is side] for side in (False, True)]
    caught = 0
    for _ in range(AGAIN):
        picks = [(side, rng.integers(0, len(side), releases // 2)) for side in sides]
        drawn = [side[index] for side, numbers in picks for index in numbers]
        caught += shown(claim, drawn).p_value < LEVEL
    return caught / AGAIN


def sizes(trials: int) -> list[int]:
    """Numbers of releases whose power is told: halves, down to ten."""
    halves = [trials // 2**number for number in range(7)]
    return sorted(size for size in halves if size >= LEAST)


@pytest.mark.parametrize(("twin", "method"), CASES)
def test_a_twin_is_caught(twin, method, tmp_path, monkeypatch, sections):
    sabotage = TWINS[twin]
    attack = sabotage.attack(method)
    with monkeypatch.context() as patch:
        sabotage.patch(patch)
        claim, trials = trials_of(attack, tmp_path, sabotage.trials)
    seen = shown(claim, trials)
    caught = {size: power(claim, trials, size) for size in sizes(len(trials))}
    rows, powers = sections
    rows.setdefault(twin, []).append(row(attack, claim, seen, f"{caught[len(trials)]:.2f}"))
    powers.setdefault(twin, {})[method] = caught
    assert seen.p_value < LEVEL
    assert caught[len(trials)] >= POWER


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
    rows, _ = sections
    rows.setdefault(f"no sabotage, {attack.relation}", []).append(row(attack, claim, seen, ""))
    assert seen.p_value >= LEVEL
