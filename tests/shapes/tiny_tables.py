"""Tables over a few levels, for laws of queries."""

from pathlib import Path

import numpy as np

from cloister.schema.attributes import Categorical
from cloister.schema.domain import Domain, Table


def domain_of(*sizes):
    attributes = {
        f"c{index}": Categorical(type="categorical", values=[f"v{v}" for v in range(size)])
        for index, size in enumerate(sizes)
    }
    return Domain.of(attributes, Path())


def table_of(rows, sizes=(3, 2, 4)):
    codes = np.array(rows, dtype=np.int64).reshape(-1, len(sizes))
    return Table(domain_of(*sizes), {f"c{index}": codes[:, index] for index in range(len(sizes))})


def random_rows(rng, count, sizes=(3, 2, 4)):
    return np.stack([rng.integers(0, size, count) for size in sizes], axis=1)
