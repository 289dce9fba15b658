"""Joint tables of the attributes that analysts predict, with each other attribute.

Rounds choose the tables with the greatest errors in rows. A target of few values, or a rare one,
has small errors in rows, however much the other attributes tell of it: its tables are counted
without a choice, before the rounds.

No source. Classifiers need how a target depends on each attribute; few parts show that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cloister.models.core.bins import Histogram, coarse
from cloister.models.core.budget_split import Kind, NoiseLaw, counts
from cloister.models.core.noisy_table import NoisyTable, count_table
from cloister.models.mixture.schedule import Schedule, clear_parts
from cloister.models.task import Counted, Task
from cloister.privacy.queries.query import Door, TableRows

TARGETS = "targets"
"""The kind of queries, and its stage."""

_SHARE = 0.2
"""Part of the budget of rounds for the tables of targets, if there are any."""

MOST_OF_TARGETS = 2
"""Most tables of targets, as a multiple of the tables that rounds choose (docs/papers.md)."""


@dataclass(frozen=True)
class TargetTables:
    """The ``pairs`` of a target and another attribute; each has at most so many ``parts``."""

    pairs: tuple[tuple[str, str], ...] = ()
    parts: int = 0

    @classmethod
    def of(
        cls, targets: Collection[str], names: Sequence[str], schedule: Schedule, scaled_size: float
    ) -> TargetTables:
        """Those of declared ``targets`` among the attributes ``names``.

        None if most attributes are targets, which then tells none apart, or if the tables would be
        more than twice those that rounds choose. Fewer parts where noise is strong.
        """
        known = [name for name in names if name in targets]
        pairs = tuple(
            (target, partner)
            for number, target in enumerate(known)
            for partner in names
            if partner != target and partner not in known[:number]
        )
        most = MOST_OF_TARGETS * schedule.tables
        if not 0 < len(pairs) <= most or 2 * len(known) > len(names):
            return cls()
        return cls(pairs, max(clear_parts(scaled_size, len(pairs) / _SHARE), 2))

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that have tables."""
        return tuple(dict.fromkeys(target for target, _ in self.pairs))

    def kind(self, task: Task, share: float, law: NoiseLaw) -> Kind:
        """The queries, of the ``share`` of the budget that rounds would have."""
        words = "joint tables of each of evaluation.targets with each other attribute: "
        words += ", ".join(self.targets)
        return counts(task, TARGETS, share * _SHARE, len(self.pairs), words, law=law)

    def counted(self, sizes: Mapping[str, int], deviation: float) -> Iterator[Counted]:
        """The tables of attributes of these ``sizes``, with the deviation of a count in rows."""
        for pair in self.pairs:
            yield Counted({name: min(sizes[name], self.parts) for name in pair}, deviation)

    def measure(
        self,
        private: Door[TableRows],
        bins: Mapping[str, Histogram],
        law: NoiseLaw,
        noise: Mapping[str, Fraction],
    ) -> tuple[NoisyTable, ...]:
        """The noisy tables.

        Privacy: a partition of the rows for each, with the noise that the plan holds.
        """
        if not self.pairs:
            return ()
        mechanism = law.counts(noise[TARGETS])
        few = {
            name: coarse(histogram, self.parts) if histogram.size > self.parts else histogram
            for name, histogram in bins.items()
        }
        return tuple(
            count_table(private, [few[name] for name in pair], mechanism, " x ".join(pair))
            for pair in self.pairs
        )
