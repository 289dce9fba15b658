"""Training on a second device: everything is where it belongs, and the noise is the processor's.

Where there is no CUDA, torch's fake tensors of device "meta" stand for it: they have shapes and
devices but no numbers, and refuse to meet those of another device.
"""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from private_table import PrivateTable
from torch._subclasses import FakeTensorMode

from cloister.devices import CPU, Device
from cloister.models.core.bins import bin_cells, coarse
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.kamino.networks import TupleNetwork
from cloister.models.kamino.paper.heads import ATTENTIONS, LevelHead, NormalHead, Units
from cloister.models.kamino.paper.submodels import SubModel, TiedSubModel
from cloister.models.kamino.paper.training import Stack, descend
from cloister.models.kamino.training import (
    HostSum,
    NoisyGradients,
    TrainingSchedule,
    train_privately,
)
from cloister.models.mixture import optimizer
from cloister.models.mixture.factors import join_feasible_sets, separate_factors
from cloister.models.mixture.optimizer import DependencePenalty, Fit, MeanTarget, TableTarget
from cloister.models.mixture.products import Factor, Mixture
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.noise import GaussianGradient, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.clipped_gradients import Outer, SampledRows, clipped_sum
from cloister.schema.attributes import Categorical
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells

CUDA = Device(0)


class Second(Device):
    """A device that every machine has."""

    torch = torch.device("meta")


ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
SIZES = {"a": 3, "b": 12, "c": 4}
LAYOUTS = {
    "separate": separate_factors(SIZES),
    "joined": join_feasible_sets(SIZES, [Factor(("a", "c"), np.array([[0, 0], [1, 1], [2, 3]]))]),
}
UNITS = Units(((0,), (1,), (2,)), tuple(SIZES.values()))
LEVELS = tuple(LevelHead(np.full(size, 1 / size)) for size in SIZES.values())
NUMBER = NormalHead(np.linspace(-1, 1, 4), np.full(4, 0.5))


def silent(done, total):
    pass


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    columns = {
        name: Categorical(type="categorical", values=[f"v{at:02}" for at in range(size)])
        for name, size in SIZES.items()
    }
    codes = {name: rng.integers(0, size, rows) for name, size in SIZES.items()}
    return Table(Domain.of(columns, Path()), codes)


def bins():
    domain = table(1).domain
    rng = np.random.default_rng(0)
    return {
        name: bin_cells(declared_cells(domain[name]), rng.dirichlet(np.ones(size)), 0.0, keep=True)
        for name, size in SIZES.items()
    }


LEARNERS = {
    "network": TupleNetwork(UNITS.sizes, 6),
    "sub-model": SubModel(2, UNITS, ATTENTIONS["softmax"], LEVELS[2], 6),
    "sub-model of a number": SubModel(2, UNITS, ATTENTIONS["gates"], NUMBER, 6),
    "tied": TiedSubModel(2, UNITS, ATTENTIONS["softmax"], LEVELS[2], 6, LEVELS),
    "tied to a number": TiedSubModel(
        2, UNITS, ATTENTIONS["softmax"], NUMBER, 6, (*LEVELS[:2], NUMBER)
    ),
    "side by side": Stack(
        tuple(SubModel(at, UNITS, ATTENTIONS["softmax"], LEVELS[at], 6) for at in (1, 2))
    ),
}


def start_of(learner):
    generator = torch.Generator().manual_seed(1)
    if isinstance(learner, TupleNetwork):
        return learner.initial([np.full(size, 1 / size) for size in learner.sizes], generator)
    if isinstance(learner, Stack):
        return learner.joined([own.initial({}, generator) for own in learner.submodels])
    return learner.initial({}, generator)


class Sums:
    """Gradients without noise, of rows that are on the host; where their blocks were."""

    noise_variance = 1e-6

    def __init__(self):
        self.devices = set()

    def step(self, gradient, shapes):
        blocks = gradient(torch.zeros(8, len(SIZES), dtype=torch.long))
        squared = torch.stack([block.squared_norms() for block in blocks.values()]).sum(0)
        self.devices.add(str(squared.device))
        sums = {name: block.weighted_sum(1 / squared) for name, block in blocks.items()}
        assert {own.device.type for own in sums.values()} == {"cpu"}
        assert {name: own.shape for name, own in sums.items()} == {
            name: own.shape for name, own in shapes.items()
        }
        return {name: sums[name].float() for name in shapes}


@pytest.mark.parametrize("descent", [train_privately, descend])
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_gradients_and_norms_are_on_the_device_and_sums_and_models_on_the_host(learner, descent):
    sums, start = Sums(), start_of(learner)
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = descent(learner, start, sums, TrainingSchedule(2, 0.1), Second(), silent)
    assert sums.devices == {"meta"}
    assert {value.device.type for value in found.values()} == {"cpu"}
    assert {name: v.shape for name, v in found.items()} == {n: v.shape for n, v in start.items()}


def start_and_targets(layout):
    rng, own = np.random.default_rng(2), bins()
    sets = [("a",), ("b",), ("a", "b"), ("c", "b", "a"), ("c", "b")]
    targets = []
    for names in sets:
        parts = tuple(own[name] if len(names) < 3 else coarse(own[name], 3) for name in names)
        shape = tuple(part.size for part in parts)
        marginal = NoisyTable(parts, rng.uniform(0, 200, shape), 10.0)
        targets.append(TableTarget.of(marginal, layout, 1_000))
    pair = [own[name] for name in ("c", "b")]
    numbers = rng.random([part.size for part in pair])
    targets.append(MeanTarget.of(pair, numbers, 0.3, 0.01, layout))
    generator = torch.Generator().manual_seed(3)
    shares = [
        torch.softmax(torch.randn(factor.size, 5, generator=generator), 0)
        for factor in layout.factors
    ]
    return Mixture(layout, torch.full((5,), 0.2), torch.cat(shares)), targets


def fit_on(device, begin, targets):
    fit = Fit(begin, DependencePenalty(2.0), 1.0, device.torch)
    fit.descend(targets, 2, 0.05, 0.01)
    return fit


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_mixture_is_fitted_on_the_device_and_read_on_the_host(layout, monkeypatch):
    made = start_and_targets(layout)
    monkeypatch.setattr(optimizer, "_key", lambda view: (view.factor, view.size, id(view.index)))
    with FakeTensorMode(allow_non_fake_inputs=True):
        fit = fit_on(Second(), *made)
        assert fit._now().shares.device.type == "meta"
        assert fit.mixture.shares.device.type == fit.mixture.weights.device.type == "cpu"


@ON_CUDA
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_mixture_is_the_same_on_both_devices(layout):
    one, other = (fit_on(device, *start_and_targets(layout)).mixture for device in (CPU, CUDA))
    torch.testing.assert_close(one.shares, other.shares, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(one.weights, other.weights, rtol=1e-3, atol=1e-4)


class Counting:
    """Gradients of whole numbers, whose sums are exact on every device; scaled to be clipped."""

    def __init__(self, scale):
        self._scale = scale

    def gradient(self, parameters, codes):
        where = parameters["w"].device
        ones = torch.ones(len(codes), 1, device=where)
        return {"w": Outer(self._scale * (codes.float() - 1), ones)}

    def gains(self):
        return {"w": torch.tensor(1.0)}


def answers(device, learner, start, folder, clip=1e6):
    """The noisy sums of three steps, from a repeatable source, and the parameters after them."""
    mechanism = GaussianGradient(Fraction(1, 2), Fraction(1), clip)
    private = PrivateTable(
        table(500),
        Neighbours(),
        mechanism.events(3, 1),
        Journal.open(folder, {"device": str(device)}),
        NoiseSource.insecure(5),
    )
    gradients = NoisyGradients(private, SampledRows(tuple(bins().values()), mechanism, 250.0), "n")
    found = []
    ask = gradients.step

    class Recorded:
        noise_variance = gradients.noise_variance

        def step(self, gradient, shapes):
            found.append(ask(gradient, shapes))
            return found[-1]

    trained = train_privately(learner, start, Recorded(), TrainingSchedule(3, 0.1), device, silent)
    return found, trained


@pytest.mark.parametrize("device", [CPU, pytest.param(CUDA, marks=ON_CUDA)], ids=str)
def test_the_noise_is_bit_for_bit_that_of_the_processor(device, tmp_path):
    start = {"w": torch.zeros(3, 1)}
    one, _ = answers(CPU, Counting(1.0), start, tmp_path / "one")
    other, _ = answers(device, Counting(1.0), start, tmp_path / "other")
    alone, _ = answers(device, Counting(0.0), start, tmp_path / "alone")
    for step in range(3):
        assert torch.equal(one[step]["w"], other[step]["w"])
        assert not torch.equal(one[step]["w"], alone[step]["w"])
        assert alone[step]["w"].abs().max() > 0
    moved = [own["w"].to(device.torch).cpu() for own in one]
    assert all(torch.equal(own["w"], back) for own, back in zip(one, moved, strict=True))


@ON_CUDA
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_model_is_the_same_on_both_devices_but_for_rounding(learner, tmp_path):
    start = start_of(learner)
    _, one = answers(CPU, learner, start, tmp_path / "one", 1.0)
    _, other = answers(CUDA, learner, start, tmp_path / "other", 1.0)
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", [CPU, pytest.param(CUDA, marks=ON_CUDA)], ids=str)
def test_clipping_bounds_each_example_on_every_device(device):
    where = device.torch
    network = LEARNERS["network"]
    parameters = {name: 3 * value.to(where) for name, value in start_of(network).items()}
    codes = torch.as_tensor(np.stack([*table(9).codes.values()], 1).astype(np.int64)).to(where)
    for row in range(9):
        blocks = network.gradient(parameters, codes[row : row + 1])
        sums = clipped_sum({name: HostSum(block) for name, block in blocks.items()}, 0.5)
        assert sum(float(own.square().sum()) for own in sums.values()) <= 0.25
