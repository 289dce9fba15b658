"""How near the claim neighbours come: what the answers show of them, were there endless releases.

The exact answers of some releases of both tables are kept, and the noise of each is drawn many
times. Later queries depend on earlier answers, so that this is the mean over those releases.
"""

import datetime as dt
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from cloister.arrays import Floats
from cloister.audit import doors
from cloister.audit.bounds import mu_of, ranks
from cloister.audit.likelihood import log_likelihood
from cloister.audit.tables import KINDS, PERSON, ROW
from cloister.audit.trials import Arena, Attack
from cloister.privacy.events import Relation
from cloister.tasks.home.process import code_version


def late_imports():
    global insert
    from cloister.benchmarks.pages.markdown import insert


RELEASES = 4
DRAWS = 30_000
LEAST = 0.96
"""Of the claimed mu; both areas are known to 0.002, so the ratio of their mus to about 0.01."""

# a delta is below one in the number of rows
BUDGETS = {"1e-2": 90, "1e-6": 200}


class Asked(NamedTuple):
    """A mechanism, its sensitivity, and the exact answers without and with the unit."""

    mechanism: Any
    sensitivity: Any
    without: np.ndarray
    with_unit: np.ndarray

    def losses(self, with_unit: bool, rng: np.random.Generator) -> Floats:
        """The losses of answers drawn of either table."""
        if hasattr(self.mechanism, "select"):
            return self._losses_of_choices(with_unit, rng)
        scale = self.mechanism.scale(self.sensitivity)
        moved = (self.with_unit - self.without)[self.without != self.with_unit]
        if type(self.mechanism).__name__ == "DiscreteGaussian":
            squares = float(np.square(moved / scale).sum())
            return np.asarray(rng.normal((with_unit - 0.5) * squares, np.sqrt(squares), DRAWS))
        ratio, shape = 1 - np.exp(-1 / scale), (DRAWS, len(moved))
        noise = rng.geometric(ratio, shape) - rng.geometric(ratio, shape)
        noisy = noise + moved * with_unit
        return np.asarray((np.abs(noisy) - np.abs(noisy - moved)).sum(axis=1) / scale)

    def _losses_of_choices(self, with_unit: bool, rng: np.random.Generator) -> Floats:
        logs = [
            np.array(
                [
                    log_likelihood(self.mechanism, self.sensitivity, scores, np.array([chosen]))
                    for chosen in range(len(scores))
                ]
            )
            for scores in (self.without, self.with_unit)
        ]
        chances = np.exp(logs[with_unit])
        return (logs[1] - logs[0])[rng.choice(len(chances), DRAWS, p=chances / chances.sum())]


@pytest.fixture
def asked(monkeypatch):
    """The answers of the latest release."""
    answers: list[Asked] = []
    add = doors.WatchedDoor._add

    def kept(door, mechanism, fitted, beside):
        exact = fitted.answered, beside.answered
        pair = exact[::-1] if door.worlds.with_unit else exact
        answers.append(Asked(mechanism, fitted.sensitivity(door.neighbours), *pair))
        return add(door, mechanism, fitted, beside)

    monkeypatch.setattr(doors.WatchedDoor, "_add", kept)
    return answers


@pytest.fixture(scope="module")
def lines():
    """The rows of the page, which is written where AUDIT_PAGE says, once the last one is known."""
    rows = [
        "| method | unit | relation | delta | mu claimed | mu of the answers | reach |",
        "|" + "---|" * 7,
    ]
    yield rows
    print("\n" + "\n".join(rows))
    if page := os.environ.get("AUDIT_PAGE"):
        today = dt.datetime.now(dt.UTC).date()
        made = f"`make audit`, Cloister {code_version()}, {today}.\n\n"
        insert(Path(page), "reach", made + "\n".join(rows))


@pytest.mark.audit
@pytest.mark.parametrize("delta", BUDGETS)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("unit", [ROW, PERSON])
@pytest.mark.parametrize("method", ["mixture", "independent", "dpview+"])
def test_neighbours_attain_what_is_claimed(method, unit, relation, delta, asked, tmp_path, lines):
    kind, *_ = KINDS[unit]
    attack = Attack(method, unit, relation, delta=delta, kind=kind, rows=BUDGETS[delta])
    arena, rng, areas = Arena(attack, tmp_path), np.random.default_rng(1), []
    for number in range(RELEASES):
        asked.clear()
        list(arena.trials([number % 2 == 1]))
        sides = [sum(each.losses(side, rng) for each in asked) for side in (False, True)]
        areas.append(ranks(*sides)[0])
    claimed, reached = arena.claim.mu, mu_of(float(np.mean(areas)))
    figures = f"{claimed:.3f} | {reached:.3f} | {reached / claimed:.2f}"
    lines.append(f"| {method} | {unit} | {relation} | {delta} | {figures} |")
    assert LEAST <= reached / claimed <= 2 - LEAST
