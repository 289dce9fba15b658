"""Products with one thing sabotaged, for the audit: what each patches, where it is looked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from cloister.audit.tables import TABLES
from cloister.audit.trials import Attack
from cloister.models.one_table import OneTable
from cloister.privacy.door.table import PlanBudget
from cloister.privacy.events import Relation, Sensitivity
from cloister.privacy.mechanisms import noise, selection
from cloister.privacy.queries.counts import PartitionCounts
from cloister.schema import validation
from cloister.schema.partition import declared_cells


@dataclass(frozen=True)
class Twin:
    """A sabotage: ``patch`` does it, ``methods`` are where it is looked for, in ``trials``."""

    patch: Callable
    methods: tuple[str, ...] = ("independent", "dpview+", "copula")
    relation: Relation = Relation.ADD_REMOVE
    kind: str = "rare"
    epsilon: str = "4"
    trials: int = 40

    def attack(self, method: str) -> Attack:
        """What is audited."""
        attack = Attack(method, relation=self.relation, epsilon=self.epsilon, kind=self.kind)
        several = method.startswith("relational")
        return replace(attack, unit=TABLES, kind="most children") if several else attack


def halve_noise(patch) -> None:
    """Counts get noise of half the scale that the event names."""
    for name in ("make_gaussian", "make_laplace"):
        make = getattr(noise, name)
        patch.setattr(noise, name, lambda *space, scale, make=make: make(*space, scale=scale / 2))


def ask_uncharged(patch) -> None:
    """Each fit asks once more than it planned, of a budget that does not mind."""
    train = OneTable.train

    def trained(self, private, task, plan):
        column = next(column for column in task.lead.domain if column.kind != "key")
        query, wide = (
            PartitionCounts((declared_cells(column),)),
            noise.DiscreteGaussian(Fraction(10)),
        )
        private.table(task.schema.lead).answer(query, wide, "a look")
        return train(self, private, task, plan)

    patch.setattr(OneTable, "train", trained)
    patch.setattr(PlanBudget, "consume", lambda self, event: None)


def ignore_replacement(patch) -> None:
    """A replaced unit is believed to change no more than one that is added."""
    partition = Sensitivity.partition
    added = lambda relation, max_rows=1: partition(Relation.ADD_REMOVE, max_rows)
    patch.setattr(Sensitivity, "partition", added)


def select_exactly(patch) -> None:
    """The best score is chosen without noise."""
    best = lambda self, scores, sensitivity, source: int(np.argmax(scores))
    for kind in (selection.Exponential, selection.PermuteAndFlip):
        patch.setattr(kind, "select", best)


def list_values_of_the_data(patch) -> None:
    """Values that do not occur are not listed, and so get no noise."""
    for kind in (noise.DiscreteGaussian, noise.DiscreteLaplace):

        def listed(self, exact, *more, release=kind.release):
            return np.where(exact > 0, release(self, exact, *more), 0)

        patch.setattr(kind, "release", listed)


def parse_across_rows(patch) -> None:
    """One number that is out of range makes all others of its column the least."""
    parse = validation.parse

    def parsed(values, attribute):
        typed, invalid = parse(values, attribute)
        if attribute.type == "integer" and (typed > attribute.max).any():
            typed = typed.where(typed > attribute.max, attribute.min)
        return typed, invalid

    patch.setattr(validation, "parse", parsed)


# Trials by the power that is expected of them at the level of one of 18 tests, each of three kinds,
# which is 3.1 standard deviations; 95 % power takes 1.65 more, 4.8 in all:
#   nearness per root of a release, measured: 2.2 and more of halved noise, 0.5 of the list, 0.46 of
#   selections, so at least 5, 90 and 110 releases; 100 of selections had a power of 0.96 to 1;
#   the root of two times the claimed mu, 1.9 on Gaussian counts: 570 releases, by the deviation of
#   the logit of the area; at a claimed mu of 1 or 3 more: 700 of copula, which claims 0.84, had a
#   power of 0.90;
#   parsing across rows tells the tables apart without fail, which a mu of 0.25 allows in 55 % of
#   releases: 20 of either table show it, and 60 at a mu of 1.9.
TWINS = {
    "noise halved": Twin(halve_noise),
    "a query uncharged": Twin(ask_uncharged),
    "add and remove's sensitivity under replacement": Twin(
        ignore_replacement, ("independent", "dpview+", "dpview"), Relation.REPLACE_ONE, trials=700
    ),
    "selection on exact scores": Twin(
        select_exactly, ("mixture", "relational-mixture", "relational"), trials=150
    ),
    "a list of values read from data": Twin(list_values_of_the_data, trials=200),
    "parsing across rows": Twin(parse_across_rows, kind="invalid", epsilon="0.5", trials=60),
}
