"""Products with one thing sabotaged, for the audit: what each patches, where it is looked for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from cloister.audit.tables import CHOOSING_ROWS, LEAST_ROWS, TABLES
from cloister.audit.trials import Attack
from cloister.models.one_table import OneTable
from cloister.privacy.door.table import PlanBudget
from cloister.privacy.events import Relation, Sensitivity
from cloister.privacy.mechanisms import noise, selection
from cloister.privacy.mechanisms.randomness import NoiseSource
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
    rows: int = LEAST_ROWS
    trials: int = 40

    def attack(self, method: str) -> Attack:
        """What is audited."""
        attack = Attack(
            method,
            relation=self.relation,
            epsilon=self.epsilon,
            kind=self.kind,
            rows=self.rows,
        )
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


def use_noise_twice(patch) -> None:
    """Each answer of a release has noise by the seed of the release."""
    seed_noise(patch, lambda release, answer: release)


def use_noise_again(patch) -> None:
    """Each answer has noise by the seed of its place, which all releases share."""
    seed_noise(patch, lambda release, answer: answer)


def seed_noise(patch, seed: Callable[[int, int], int]) -> None:
    """Noise follows from a seed, made of the number of the release and of the answer in it."""
    train, now = OneTable.train, {"release": 0, "answer": 0}

    def trained(*arguments):
        now.update(release=now["release"] + 1, answer=0)
        return train(*arguments)

    patch.setattr(OneTable, "train", trained)
    for kind in (noise.DiscreteGaussian, noise.DiscreteLaplace, noise.GaussianGradient):

        def released(self, exact, sensitivity, source, release=kind.release):
            now["answer"] += 1
            seeded = NoiseSource.insecure(seed(now["release"], now["answer"]))
            return release(self, exact, sensitivity, seeded)

        patch.setattr(kind, "release", released)


def keep_rows_for_the_outcome(patch) -> None:
    """Counts are answered as they are, whatever was drawn and written to the journal."""
    count, kept = PartitionCounts.exact, []

    def exact(self, rows, source):
        kept[:] = [count(self, rows, source)]
        return kept[0]

    patch.setattr(PartitionCounts, "exact", exact)
    patch.setattr(PartitionCounts, "outcome", lambda self, noisy: kept[0].reshape(self.shape))


def read_a_bound_from_data(patch) -> None:
    """The bins of whole numbers end at the greatest one that occurs."""
    parse = validation.parse

    def parsed(values, attribute):
        typed, invalid = parse(values, attribute)
        if attribute.type == "integer":
            greatest = typed.fillna(0).max() if len(typed) else 0
            typed = typed * attribute.max // max(int(greatest), 1)
        return typed, invalid

    patch.setattr(validation, "parse", parsed)


# Trials by the power that is expected of them at the level of one of 30 tests, each of five kinds,
# which is 3.4 standard deviations; 95 % power takes 1.65 more, 5.1 in all:
#   nearness per root of a release, measured: 2.2 and more of halved noise, 0.5 of the list, 0.46 of
#   the selections of `mixture` and 1.7 of the ten of `relational` (it has none in smaller tables),
#   so at least 6, 105, 125 and 9 releases;
#   the root of two times the claimed mu, 1.9 on Gaussian counts: 640 releases, by the deviation of
#   the logit of the area; at a claimed mu of 1 or 3 more: 700 of copula, which claims 0.84, had a
#   power of 0.90;
#   parsing across rows tells the tables apart without fail, which a mu of 0.25 allows in 55 % of
#   releases: 20 of either table show it; at a mu of 1.9, as for a bound read from data, 200;
#   signs: noise used again is seen in a few releases, and noise used twice in a release of four
#   answers had a power of 0.87 and 0.96 with 40 of those.
TWINS = {
    "noise halved": Twin(halve_noise),
    "a query uncharged": Twin(ask_uncharged),
    "add and remove's sensitivity under replacement": Twin(
        ignore_replacement, ("independent", "dpview+", "dpview"), Relation.REPLACE_ONE, trials=700
    ),
    "selection on exact scores": Twin(select_exactly, ("mixture",), trials=150),
    "selection on exact scores of several tables": Twin(
        select_exactly, ("relational", "relational-mixture"), rows=CHOOSING_ROWS
    ),
    "a list of values read from data": Twin(list_values_of_the_data, trials=200),
    "parsing across rows": Twin(parse_across_rows, kind="invalid", epsilon="0.5", trials=60),
    "noise used twice in a release": Twin(use_noise_twice, trials=100),
    "noise used again in the next release": Twin(use_noise_again),
    "an outcome that reads rows": Twin(keep_rows_for_the_outcome),
    "a bound read from data": Twin(read_a_bound_from_data, trials=200),
}
