"""Errors of a released Bayesian network on real rows, attribute by attribute; internal.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 6.2, Figures 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from cloister.arrays import Integers
from cloister.models.deniability.pool import model_errors, network_of
from cloister.models.storage import load_saved
from cloister.schema.domain import Table
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.release.comparison import table_of
from cloister.tasks.requests.resolved import declared_context

_TESTED = 20_000
"""Real rows at most on which models are tested; the paper draws millions, with repetition."""

_LEARNT = 10_000
"""Other real rows at most from which the forest learns."""

_TREES = 30
"""Trees of the forest: 100 are right about half a percent more of the rows, in three times as long.
"""

SHOWN = ("network", "marginals", "forest", "guess")
"""What may be wrong about an attribute: the lines of Figure 2."""

_SEED = 20_170_104
"""Public seed of the forest, and of the rows it is tested on."""


def measure_network(spec: Path, data: Path, model: Path) -> list[dict[str, Any]] | None:
    """The errors on real rows of the network in a folder, and of a forest that learnt such rows.

    None if the model has no network.

    Raises:
        InputError, StorageError: the spec, the table or the model cannot be read.
    """
    network = network_of(load_saved(model).one[1])
    if network is None:
        return None
    tested, learnt = (
        np.stack([part.index(rows.codes[part.name]) for part in network.partitions], axis=1)
        for rows in _real_rows(spec, data, data.stat().st_mtime_ns)
    )
    return [
        asdict(error) | {"forest": _forest_error(learnt, tested, position)}
        for position, error in enumerate(model_errors(network, tested))
    ]


def network_figures(measured: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Each error by attribute: ``network.age.forest``; shares of rows."""
    return {
        f"network.{error['attribute']}.{name}": error[name] for error in measured for name in SHOWN
    }


@lru_cache(maxsize=1)
def _real_rows(spec: Path, data: Path, changed: int) -> tuple[Table, Table]:
    """Real rows to test models on, and others that the forest learns from, in random order."""
    del changed
    declared = load_spec(spec)
    rows = table_of(declared_context(declared, declared.privacy.rows.public or 1).only, data)
    order = np.random.default_rng(_SEED).permutation(rows.rows)
    tested = min(_TESTED, -(-2 * rows.rows // 3))
    return rows.take(order[:tested]), rows.take(order[tested : tested + _LEARNT])


def _forest_error(learnt: Integers, tested: Integers, position: int) -> float | None:
    """The share of rows about whose level a forest is wrong; None without others to learn from."""
    predictors = [column for column in range(learnt.shape[1]) if column != position]
    if not predictors or not len(learnt):
        return None
    forest = RandomForestClassifier(_TREES, min_samples_leaf=2, n_jobs=1, random_state=_SEED)
    said = forest.fit(learnt[:, predictors], learnt[:, position]).predict(tested[:, predictors])
    return float((said != tested[:, position]).mean())
