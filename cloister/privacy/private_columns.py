"""The door to columns whose domains are not known yet: the one place that reads raw cells to measure a domain.

As :class:`~cloister.privacy.private.PrivateTable`, it takes mechanisms, checks that the plan holds the event, writes
the noisy answer to the journal, and only then returns it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cloister.privacy.buckets import Buckets
from cloister.privacy.events import Event
from cloister.privacy.journal import Journal
from cloister.privacy.mechanisms import CountMechanism, Neighbours, SparseHistogram
from cloister.privacy.private import Meter
from cloister.privacy.randomness import NoiseSource
from cloister.schema.attributes import AnyAttribute
from cloister.schema.parsing import parse

Counts = NDArray[np.int64]


class PrivateColumns:
    """Raw columns behind mechanisms.

    Args:
        frame: the sensitive rows as they were read, already bounded to ``neighbours.max_rows`` rows a unit.
        key: secret; numbers distinct texts, so that the journal holds numbers only.
        planned: everything that may be asked, as reserved in the ledger.
        journal: where each answer is written before it is returned.
        noise: the secure source.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        key: bytes,
        neighbours: Neighbours,
        planned: Event,
        journal: Journal,
        noise: NoiseSource,
    ) -> None:
        self.__frame = frame
        self.__key = key
        self.__journal = journal
        self.__noise = noise
        self.meter = Meter(planned)
        self.neighbours = neighbours

    def rows(self, mechanism: CountMechanism) -> int:
        """The noisy number of rows. Privacy: a partition with one part."""
        draw = self.__noisy(lambda: np.array([len(self.__frame)], dtype=np.int64), mechanism)
        return int(self.__answer(mechanism.event(self.neighbours.partition), {"ask": "rows"}, draw)[0])

    def counts(self, buckets: Buckets, mechanism: CountMechanism) -> Counts:
        """Noisy numbers of rows (size,) in each part of a public partition of one column.

        Privacy: a partition of the rows; one unit moves it as ``neighbours.partition`` says.
        """
        request = {"ask": type(buckets).__name__, "of": buckets.name, "shape": [buckets.size]}
        draw = self.__noisy(lambda: self.__exact_counts(buckets), mechanism)
        return self.__answer(mechanism.event(self.neighbours.partition), request, draw)

    def categories(self, name: str, attribute: AnyAttribute, mechanism: SparseHistogram) -> dict[str, int]:
        """The readable values of one column, as text, whose noisy counts reach the threshold, with these counts.

        Privacy: a histogram over all texts, each numbered by 63 bits of a keyed BLAKE2b, so that the numbers of texts
        that are there do not depend on those that are not. Texts of the same number, were there any, count together.
        """
        texts, cells, counts = self.__exact_texts(name, attribute)
        sensitivity = self.neighbours.partition
        released, noisy = self.__answer(
            mechanism.event(sensitivity),
            {"ask": "categories", "of": name},
            lambda: np.stack(mechanism.release(cells, counts, sensitivity, self.__noise)),
        )
        return {texts[place]: int(count) for place, count in zip(np.searchsorted(cells, released), noisy, strict=True)}

    def __answer(self, event: Event, request: Mapping[str, Any], draw: Callable[[], Counts]) -> Counts:
        self.meter.take(event)
        return self.__journal.answer({**request, "event": event.to_json()}, draw)

    def __noisy(self, exact: Callable[[], Counts], mechanism: CountMechanism) -> Callable[[], Counts]:
        return lambda: mechanism.noise(exact(), self.neighbours.partition, self.__noise)

    def __exact_counts(self, buckets: Buckets) -> Counts:
        return np.bincount(buckets.of(self.__frame[buckets.name]), minlength=buckets.size).astype(np.int64)

    def __exact_texts(self, name: str, attribute: AnyAttribute) -> tuple[list[str], Counts, Counts]:
        """Distinct texts, their numbers, ascending, and their rows."""
        typed, _ = parse(self.__frame[name], attribute)
        found = typed.dropna().astype(str).value_counts()
        cells, first, places = np.unique(numbered(found.index, self.__key), return_index=True, return_inverse=True)
        counts = np.zeros(len(cells), dtype=np.int64)
        np.add.at(counts, places, found.to_numpy(dtype=np.int64))
        return [str(found.index[place]) for place in first], cells, counts


def numbered(texts: pd.Index, key: bytes) -> Counts:
    """A number (n,) of 63 bits for each text, which nobody without the key can tell."""
    hashes = (hashlib.blake2b(text.encode(), digest_size=8, key=key) for text in texts)
    return np.array([int.from_bytes(digest.digest()) >> 1 for digest in hashes], dtype=np.int64)
