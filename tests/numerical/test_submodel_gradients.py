"""Sub-models' per-example gradients are those of automatic differentiation, in any units."""

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from cloister.devices import CPU
from cloister.models.kamino import training
from cloister.models.kamino.networks import TupleNetwork
from cloister.models.kamino.paper.heads import ATTENTIONS, LevelHead, NormalHead, Units
from cloister.models.kamino.paper.submodels import SubModel, TiedSubModel
from cloister.models.kamino.paper.training import Stack, descend
from cloister.privacy.queries.clipped_gradients import clipped_sum

UNITS = Units(((0, 1), (2,), (3,)), (2, 3, 4, 5))
HEADS = {
    "levels": LevelHead(np.array([0.1, 0.2, 0.3, 0.2, 0.2])),
    "normal": NormalHead(np.array([-1.5, -0.5, 0.0, 0.6, 2.0]), np.full(5, 0.7)),
}


def dense_gradients(submodel, parameters, codes):
    joint = UNITS.join(codes, 3)

    def loss(own, row):
        return submodel.head.losses(submodel.outputs(own, row[None]), row[None, submodel.unit])[0]

    if isinstance(submodel.head, NormalHead):
        rows = [grad(loss)(parameters, row) for row in joint]
        return {name: torch.stack([row[name] for row in rows]) for name in parameters}
    return vmap(grad(loss), in_dims=(None, 0))(parameters, joint)


def codes_of(sizes, rows, generator):
    return torch.stack([torch.randint(0, size, (rows,), generator=generator) for size in sizes], 1)


def moved(start, by, generator):
    """Parameters at a random distance from the start."""
    return {n: v + by * torch.randn(v.shape, generator=generator) for n, v in start.items()}


def stack_of(units, places, seed):
    """Sub-models side by side, and where each starts."""
    generator = torch.Generator().manual_seed(seed)
    heads = [LevelHead(np.full(size, 1 / size)) for size in units.levels]
    submodels = tuple(SubModel(at, units, ATTENTIONS["softmax"], heads[at], 6) for at in places)
    start = [moved(own.initial({}, generator), 1, generator) for own in submodels]
    return submodels, Stack(submodels), start, generator


@pytest.fixture(params=[(a, h) for a in ATTENTIONS for h in HEADS], ids="-".join)
def setting(request):
    attention, head = request.param
    generator = torch.Generator().manual_seed(2)
    submodel = SubModel(2, UNITS, ATTENTIONS[attention], HEADS[head], width=6)
    parameters = moved(submodel.initial({}, generator), 0.3, generator)
    codes = codes_of(UNITS.sizes, 13, generator)
    return submodel, parameters, codes, dense_gradients(submodel, parameters, codes)


@pytest.fixture(params=["levels", "normal"])
def tied(request):
    """A sub-model whose second context is a number, with a target of levels or a number."""
    levels = LevelHead(np.full(6, 1 / 6))
    points = np.array([-1.2, -0.3, 0.4, 1.5])
    heads = (levels, NormalHead(points, np.full(4, 0.9)), HEADS[request.param])
    submodel = TiedSubModel(2, UNITS, ATTENTIONS["softmax"], heads[2], 6, heads)
    generator = torch.Generator().manual_seed(4)
    parameters = moved(submodel.initial({}, generator), 0.5, generator)
    codes = codes_of(UNITS.sizes, 13, generator)
    return submodel, parameters, codes, dense_gradients(submodel, parameters, codes)


def test_tied_gradients_are_those_of_automatic_differentiation(tied):
    test_sums_and_norms_are_those_of_automatic_differentiation(tied)


def test_a_tied_sub_model_starts_from_all_that_was_learnt_before():
    heads = tuple(LevelHead(np.full(size, 1 / size)) for size in UNITS.levels)
    first, second = (
        TiedSubModel(at, UNITS, ATTENTIONS["softmax"], heads[at], 6, heads[: at + 1])
        for at in (1, 2)
    )
    generator = torch.Generator().manual_seed(5)
    learnt = {name: value + 1 for name, value in first.initial({}, generator).items()}
    start = second.initial(learnt, generator)
    assert set(learnt) == {"attention", "embed.0", "embed.1", "bias"}
    for name in ("embed.0", "embed.1"):  # the target's own embedding is handed on
        assert torch.equal(start[name], learnt[name])
    assert start["attention"].tolist() == [1.0, 0.0]
    assert not start["bias"].any()


def test_descent_is_plain(tied):
    submodel, parameters, codes, dense = tied

    class Sums:
        def step(self, gradient, shapes):
            blocks = gradient(codes)
            ones = torch.ones(len(codes)).double()
            return {n: blocks[n].weighted_sum(ones).float() / len(codes) for n in shapes}

    schedule = training.TrainingSchedule(1, 0.5)
    found = descend(submodel, parameters, Sums(), schedule, CPU, lambda done, total: None)
    for name, value in parameters.items():
        torch.testing.assert_close(found[name], value - 0.5 * dense[name].mean(0))


def test_sums_and_norms_are_those_of_automatic_differentiation(setting):
    submodel, parameters, codes, dense = setting
    blocks = submodel.gradient(parameters, codes)
    assert set(blocks) == set(parameters) == set(submodel.gains())
    for name, block in blocks.items():
        assert torch.allclose(
            block.weighted_sum(torch.ones(13).double()), dense[name].sum(0).double(), atol=1e-5
        )
        assert torch.allclose(
            block.squared_norms(), dense[name].flatten(1).double().square().sum(1), rtol=1e-4
        )


def test_units_multiply_gradients_before_clipping(setting):
    submodel, parameters, codes, dense = setting
    gains = submodel.gains()
    flat = torch.cat([(dense[name] * gains[name]).flatten(1) for name in parameters], 1).double()
    expected = (flat * torch.clamp(0.5 / flat.norm(dim=1), max=1.0)[:, None]).sum(0)
    sums = clipped_sum(training.gradient_in_units(submodel.gradient(parameters, codes), gains), 0.5)
    assert torch.allclose(
        torch.cat([sums[name].flatten() for name in parameters]), expected, rtol=1e-4, atol=1e-5
    )


def test_units_of_the_joint_network_multiply_its_gradients():
    network = TupleNetwork((2, 3, 4), width=5)
    generator = torch.Generator().manual_seed(0)
    parameters = network.initial([np.full(size, 1 / size) for size in network.sizes], generator)
    codes = codes_of(network.sizes, 9, generator)
    gains, ones = network.gains(), torch.ones(9).double()
    plain = network.gradient(parameters, codes)
    for name, block in training.gradient_in_units(plain, gains).items():
        assert torch.allclose(
            block.weighted_sum(ones), plain[name].weighted_sum(ones) * gains[name], atol=1e-6
        )


def test_a_host_sum_is_the_sum_of_its_block():
    block = training.Dense(torch.arange(12.0).reshape(3, 4))
    on_host = training.HostSum(block)
    weights = torch.tensor([1.0, 0.5, 0.0]).double()
    assert on_host.weighted_sum(weights).device.type == "cpu"
    assert torch.equal(on_host.weighted_sum(weights), block.weighted_sum(weights))
    assert torch.equal(on_host.take(torch.tensor([2])).squared_norms(), block.squared_norms()[2:])


def test_calibration_reaches_the_shares_of_every_attribute_of_a_unit():
    logits = torch.randn(4000, 6, generator=torch.Generator().manual_seed(3))
    shares = [torch.tensor([0.8, 0.2]).double(), torch.tensor([0.5, 0.3, 0.2]).double()]
    fitted = training.fit_bias(logits, shares)
    joint = torch.softmax(logits + fitted.bias, 1).mean(0).reshape(2, 3)
    assert torch.allclose(joint.sum(1).double(), shares[0], atol=2e-3)
    assert torch.allclose(joint.sum(0).double(), shares[1], atol=2e-3)


def test_joint_levels_of_a_unit_split_into_those_of_its_attributes():
    codes = torch.tensor([[1, 2, 3, 4], [0, 1, 0, 0]])
    joint = UNITS.join(codes, 3)
    assert joint.tolist() == [[5, 3, 4], [1, 0, 0]]
    assert torch.equal(UNITS.separate(joint[:, 0], 0), codes[:, :2])
    assert UNITS.unit_of(1) == (0, 1) and UNITS.unit_of(3) == (2, 0)


def test_sub_models_side_by_side_have_their_own_gradients():
    units = Units(((0, 1), (2,), (3,), (4,)), (2, 3, 4, 5, 3))
    submodels, stack, start, generator = stack_of(units, (1, 2, 3), 6)
    joined = stack.joined(start)
    codes = codes_of(units.sizes, 13, generator)
    blocks = training.gradient_in_units(stack.gradient(joined, codes), stack.gains())
    assert set(blocks) == set(joined) == set(stack.gains())
    norms = torch.stack([own.squared_norms() for own in blocks.values()]).sum(0)
    weights = torch.randn(13, generator=generator).double()
    sums = {name: own.weighted_sum(weights) for name, own in blocks.items()}
    for at, submodel in enumerate(submodels):
        assert {n: v.tolist() for n, v in stack.part(joined, at).items()} == {
            n: v.tolist() for n, v in start[at].items()
        }
        alone = training.gradient_in_units(submodel.gradient(start[at], codes), submodel.gains())
        for name, found in stack.part(sums, at).items():
            torch.testing.assert_close(
                found, alone[name].weighted_sum(weights), rtol=1e-4, atol=1e-5
            )
        norms = norms - torch.stack([own.squared_norms() for own in alone.values()]).sum(0)
    assert norms.abs().max() < 1e-3


def test_a_row_has_its_gradient_whatever_rows_are_beside_it_in_a_block():
    units = Units(((0,), (1,), (2,)), (4, 3, 5))
    _, stack, start, generator = stack_of(units, (1, 2), 7)
    start, codes = stack.joined(start), codes_of(units.sizes, 64, generator)
    others = codes.flip(0).clone()
    others[5] = codes[5]
    only = torch.zeros(64).double()
    only[5] = 1.0
    first, second = stack.gradient(start, codes), stack.gradient(start, others)
    for name, block in first.items():
        assert torch.equal(block.weighted_sum(only), second[name].weighted_sum(only)), name
