"""Random networks over a few levels, with exact probabilities: for laws of seeded records."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from cloister.privacy.queries.seeded_records import PrefixLengths

STEPS = 2**32


@dataclass(frozen=True)
class Levels:
    """A partition into the codes themselves."""

    name: str
    size: int

    def index(self, codes):
        return codes


@dataclass(frozen=True, eq=False)
class TinyModel:
    """Each attribute given all before it; ``tables[p]`` (configurations, levels) in 2^-32."""

    sizes: tuple[int, ...]
    tables: tuple[np.ndarray, ...]

    @classmethod
    def random(cls, sizes, rng, least=0.0):
        tables = []
        for position, size in enumerate(sizes):
            shares = rng.random((int(np.prod(sizes[:position], dtype=int)), size)) ** 3 + least
            steps = np.floor(shares / shares.sum(1, keepdims=True) * STEPS).astype(np.int64)
            steps[:, 0] += STEPS - steps.sum(1)
            tables.append(steps.astype(np.uint64))
        return cls(tuple(sizes), tuple(tables))

    @property
    def partitions(self):
        return tuple(Levels(f"c{position}", size) for position, size in enumerate(self.sizes))

    def configurations(self, position, levels):
        configuration = np.zeros(len(levels), dtype=np.int64)
        for before in range(position):
            configuration = configuration * self.sizes[before] + levels[:, before]
        return configuration

    def draw(self, position, levels, words):
        heights = np.cumsum(self.tables[position], axis=1)[self.configurations(position, levels)]
        return (heights <= words[:, None]).sum(1)

    def logs(self, position, levels):
        steps = self.tables[position][self.configurations(position, levels), levels[:, position]]
        with np.errstate(divide="ignore"):
            return np.log2(steps / STEPS)

    def chance(self, position, record):
        """The exact probability of a record's level at a place, given those before it."""
        row = self.configurations(position, np.array([record]))[0]
        return Fraction(int(self.tables[position][row, record[position]]), STEPS)

    def made_by(self, seed, prefixes: PrefixLengths, record) -> Fraction:
        """The exact probability that a seed makes a record."""
        total = Fraction(0)
        for number in range(prefixes.least, prefixes.most + 1):
            if tuple(seed[:number]) == tuple(record[:number]):
                chance = Fraction(1)
                for position in range(number, len(self.sizes)):
                    chance *= self.chance(position, record)
                total += chance
        return total / prefixes.choices

    def records(self):
        """All records."""
        return list(product(*map(range, self.sizes)))


def interval(chance: Fraction, gamma: Fraction) -> int:
    """The integer i with gamma^-(i+1) < chance <= gamma^-i."""
    number = 0
    while chance <= gamma ** -(number + 1):
        number += 1
    return number


def scanned(model, prefixes, gamma, rows, seed, record) -> int:
    """Step 2 of Privacy Test 1 by its definition: every row is looked at."""
    seed_interval = interval(model.made_by(seed, prefixes, record), gamma)
    chances = [model.made_by(row, prefixes, record) for row in rows]
    return sum(bool(chance) and interval(chance, gamma) == seed_interval for chance in chances)


def passes(test, plausible):
    """The probability that so many plausible seeds plus discrete Laplace noise reach a test's k."""
    ratio = math.exp(-float(test.epsilon0))
    missing = test.k - plausible
    tail = ratio ** abs(missing) / (1 + ratio)
    return tail if missing > 0 else 1 - tail * ratio
