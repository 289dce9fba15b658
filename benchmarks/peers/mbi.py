"""mbi: AIM and MST on its estimation and drawing.

The package has no mechanisms of its own, so their loops are in this file.

Source: AIM (McKenna, Mullins, Sheldon, Miklau; VLDB 2022), Algorithms 2 to 4, workload of all pairs
of at most 10,000 cells; mirror descent of 1,000 steps from the round before. Tables that a model
does not hold are summed here in numpy: mbi compiles a program for each, and after some thousands
the machine's limit of memory maps ended the process (code 245). MST (McKenna, Miklau,
Sheldon, "Winning the NIST contest", 2021), Algorithms 1 to 3, without its compression of domains,
which are public here; mirror descent of 5,000 steps. Conversion to zCDP of Canonne, Kamath, Steinke
(2020). Option ``drawing``: round or sample.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_enable_compilation_cache", False)

import numpy as np  # noqa: E402
from mbi import Dataset, Domain, LinearMeasurement, MarkovRandomField, estimation, junction_tree  # noqa: E402
from scipy.optimize import brentq, minimize_scalar  # noqa: E402

Clique = tuple[str, ...]
Tables = list[tuple[Clique, np.ndarray]]
# Cells of a pair's table at most, for it to be in the workload.
CELLS = 10_000
# Megabytes of the model at the full budget; it may grow with the share that is spent.
MEGABYTES = 80
# Steps of mirror descent of each round.
STEPS = 1000
# Share of the budget that selects pairs; the rest measures them (AIM's alpha is 0.9).
SELECTING = 0.1
# Steps of mirror descent of MST, which fits once to single attributes and once to all.
TREE_STEPS = 5000


def synthesize(codes: np.ndarray, sizes: Sequence[int], job: Mapping[str, Any]) -> np.ndarray:
    """Synthetic codes (job["rows"], k) like the real ``codes`` (n, k).

    Column j has the public domain 0, ..., sizes[j] - 1.
    """
    names = [f"a{column}" for column in range(len(sizes))]
    data = Dataset(dict(zip(names, codes.T, strict=True)), Domain(names, list(sizes)))
    rho = concentrated_budget(job["epsilon"], job["delta"])
    rng = np.random.default_rng(job["seed"])
    if job["method"] == "mst":
        model = spanning_tree(data, rho, rng)
    else:
        model = Aim(data, rho, rng).run(job["options"].get("rounds", 16 * len(names)))
    drawn = model.synthetic_data(
        rows=job["rows"], method=job["options"].get("drawing", "round")
    ).to_dict()
    return np.stack([drawn[name] for name in names], axis=1)


class Aim:
    """The rounds of AIM on one table, with ``rho`` of zero-concentrated privacy to spend."""

    def __init__(self, data: Dataset, rho: float, rng: np.random.Generator) -> None:
        self._data, self._rho, self._left, self._rng = data, rho, rho, rng
        pairs = [
            pair
            for pair in itertools.combinations(data.domain, 2)
            if data.domain.size(pair) <= CELLS
        ]
        names = sorted({name for pair in pairs for name in pair})
        overlap = {name: sum(name in pair for pair in pairs) for name in names}
        self._weights: dict[Clique, int] = {(name,): overlap[name] for name in names}
        self._weights |= {pair: sum(overlap[name] for name in pair) for pair in pairs}
        self._answers = {clique: self._count(clique) for clique in self._weights}
        self._measured: list[LinearMeasurement] = []

    def run(self, rounds: int) -> MarkovRandomField:
        """The model after all single attributes, and then pairs until the budget is spent."""
        sigma = math.sqrt(rounds / (2 * (1 - SELECTING) * self._rho))
        epsilon = math.sqrt(8 * SELECTING * self._rho / rounds)
        for clique in [clique for clique in self._weights if len(clique) == 1]:
            self._measure(clique, sigma)
        model = self._estimate(None)
        last = False
        while not last:
            last = self._left < 2 * (0.5 / sigma**2 + epsilon**2 / 8)
            if last:
                sigma = math.sqrt(1 / (2 * (1 - SELECTING) * self._left))
                epsilon = math.sqrt(8 * SELECTING * self._left)
            clique = self._select(model, sigma, epsilon)
            self._measure(clique, sigma)
            before, model = model, self._estimate(model)
            rows, domain = self._answers[clique].sum(), self._data.domain
            change = (
                rows
                * np.abs(
                    _shares(_tables(model), domain, clique)
                    - _shares(_tables(before), domain, clique)
                ).sum()
            )
            if change <= math.sqrt(2 / math.pi) * sigma * self._data.domain.size(clique):
                sigma, epsilon = sigma / 2, epsilon * 2
        return model

    def _count(self, clique: Clique) -> np.ndarray:
        return _cells(self._data, clique)

    def _measure(self, clique: Clique, sigma: float) -> None:
        self._left -= 0.5 / sigma**2
        noisy = self._answers[clique] + self._rng.normal(0, sigma, len(self._answers[clique]))
        self._measured.append(LinearMeasurement(noisy, clique, stddev=sigma))

    def _estimate(self, before: MarkovRandomField | None) -> MarkovRandomField:
        return estimation.MirrorDescent().estimate(
            self._data.domain, self._measured, iters=STEPS, warm_start=before
        )

    def _select(self, model: MarkovRandomField, sigma: float, epsilon: float) -> Clique:
        """The exponential mechanism over what a model of the size allowed so far could take in."""
        self._left -= epsilon**2 / 8
        allowed = MEGABYTES * min(1.0, 1 - self._left / self._rho + 0.5 / sigma**2 / self._rho)
        below = {clique for measured in model.cliques for clique in _below(measured)}
        candidates = [
            c for c in self._weights if c in below or self._size([*model.cliques, c]) <= allowed
        ]
        tables = _tables(model)
        scores = np.array([self._score(tables, clique, sigma) for clique in candidates])
        logits = epsilon * scores / (2 * max(self._weights[clique] for clique in candidates))
        return candidates[int(np.argmax(logits + self._rng.gumbel(size=len(candidates))))]

    def _score(self, tables: Tables, clique: Clique, sigma: float) -> float:
        noise = math.sqrt(2 / math.pi) * sigma * self._data.domain.size(clique)
        expected = self._answers[clique].sum() * _shares(tables, self._data.domain, clique)
        error = float(np.abs(self._answers[clique] - expected).sum())
        return self._weights[clique] * (error - noise)

    def _size(self, cliques: Sequence[Clique]) -> float:
        return junction_tree.hypothetical_model_size(self._data.domain, cliques)


def spanning_tree(data: Dataset, rho: float, rng: np.random.Generator) -> MarkovRandomField:
    """MST: a third of rho each for single attributes, for choosing pairs and for counting them."""
    names = tuple(data.domain)
    single = math.sqrt(3 * len(names) / (2 * rho))
    measured = [_measured(data, (name,), single, rng) for name in names]
    model = _fit(data.domain, measured)
    errors = {
        pair: float(np.abs(_cells(data, pair) - _cells(model, pair)).sum())
        for pair in itertools.combinations(names, 2)
    }
    epsilon = math.sqrt(8 * rho / 3 / (len(names) - 1))
    chosen: list[Clique] = []
    parts = {name: {name} for name in names}
    while len(chosen) < len(names) - 1:
        open_pairs = [pair for pair in errors if pair[1] not in parts[pair[0]]]
        logits = np.array([epsilon * errors[pair] / 2 for pair in open_pairs])
        pair = open_pairs[int(np.argmax(logits + rng.gumbel(size=len(logits))))]
        joined = parts[pair[0]] | parts[pair[1]]
        parts |= dict.fromkeys(joined, joined)
        chosen.append(pair)
    double = math.sqrt(3 * len(chosen) / (2 * rho))
    return _fit(data.domain, measured + [_measured(data, pair, double, rng) for pair in chosen])


def _fit(domain: Domain, measured: Sequence[LinearMeasurement]) -> MarkovRandomField:
    return estimation.MirrorDescent().estimate(domain, list(measured), iters=TREE_STEPS)


def _measured(
    data: Dataset, clique: Clique, sigma: float, rng: np.random.Generator
) -> LinearMeasurement:
    cells = _cells(data, clique)
    return LinearMeasurement(cells + rng.normal(0, sigma, len(cells)), clique, stddev=sigma)


def concentrated_budget(epsilon: float, delta: float) -> float:
    """The greatest rho whose zero-concentrated privacy implies (epsilon, delta)."""

    def log_delta(rho: float) -> float:
        def bound(log_excess: float) -> float:
            excess = math.exp(log_excess)
            alpha = 1 + excess
            return (
                excess * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(excess)
            )

        return minimize_scalar(bound, bounds=(-10, 12), method="bounded").fun

    return brentq(lambda rho: log_delta(rho) - math.log(delta), 1e-12, epsilon)


def _tables(model: MarkovRandomField) -> Tables:
    """The log-potentials of a model, by their attributes."""
    return [
        (factor.domain.attributes, np.asarray(factor.values))
        for factor in model.potentials.tables.values()
    ]


def _shares(tables: Tables, domain: Domain, clique: Clique) -> np.ndarray:
    """The shares of the cells of any table under log-potentials, by variable elimination."""
    left = list(tables)
    known = [names for names, _ in left]
    order, _ = junction_tree.greedy_order(
        domain, [*known, clique], elim=[name for name in domain if name not in clique]
    )
    for name in order:
        joined = [table for table in left if name in table[0]]
        left = [table for table in left if name not in table[0]]
        names, values = _product(joined, domain)
        axis = names.index(name)
        most = values.max(axis=axis, keepdims=True)
        summed = np.log(np.exp(values - most).sum(axis=axis)) + most.squeeze(axis)
        left.append((names[:axis] + names[axis + 1 :], summed))
    empty = np.zeros([domain.size((name,)) for name in clique])
    names, values = _product([(clique, empty), *left], domain)
    shares = np.exp(values - values.max())
    return (shares / shares.sum()).ravel()


def _product(tables: Tables, domain: Domain) -> tuple[Clique, np.ndarray]:
    """The sum of logarithms over all attributes of some tables, those of the first in front."""
    names = tuple(dict.fromkeys(name for attributes, _ in tables for name in attributes))
    total = np.zeros([domain.size((name,)) for name in names])
    for attributes, values in tables:
        ordered = sorted(range(len(attributes)), key=lambda axis: names.index(attributes[axis]))
        shape = [domain.size((name,)) if name in attributes else 1 for name in names]
        total += values.transpose(ordered).reshape(shape)
    return names, total


def _cells(source: Dataset | MarkovRandomField, clique: Clique) -> np.ndarray:
    return np.asarray(source.project(clique).datavector())


def _below(clique: Clique) -> list[Clique]:
    return [
        subset
        for size in range(1, len(clique) + 1)
        for subset in itertools.combinations(clique, size)
    ]
