"""The network's per-example gradients are those of automatic differentiation, clipped exactly."""

import numpy as np
import pytest


def late_imports():
    global LayeredOuter, Lookup, Outer, TupleNetwork, clipped_sum, grad, torch, vmap
    import torch
    from torch.func import grad, vmap

    from cloister.models.kamino.networks import TupleNetwork
    from cloister.privacy.queries.clipped_gradients import LayeredOuter, Lookup, Outer, clipped_sum


SIZES = (3, 2, 5, 4)


def loss(network, parameters, row):
    codes = row[None]
    return sum(
        torch.nn.functional.cross_entropy(network.logits(parameters, codes, at), codes[:, at])
        for at in range(len(network.sizes))
    )


@pytest.fixture
def setting():
    network = TupleNetwork(SIZES, width=6)
    generator = torch.Generator().manual_seed(1)
    start = network.initial([np.full(size, 1 / size) for size in SIZES], generator)
    parameters = {
        name: value + 0.3 * torch.randn(value.shape, generator=generator)
        for name, value in start.items()
    }
    codes = torch.stack([torch.randint(0, size, (17,), generator=generator) for size in SIZES], 1)
    dense = vmap(grad(lambda p, row: loss(network, p, row)), in_dims=(None, 0))(parameters, codes)
    return network, parameters, codes, dense


def test_sum_and_norms_are_those_of_automatic_differentiation(setting):
    network, parameters, codes, dense = setting
    factored = network.gradient(parameters, codes)
    for name, block in factored.items():
        assert torch.allclose(
            block.weighted_sum(torch.ones(17)), dense[name].sum(0).double(), atol=1e-5
        )
        norms = dense[name].flatten(1).double().square().sum(1)
        assert torch.allclose(block.squared_norms(), norms, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clip", [0.1, 1.0, 50.0])
def test_clipping_bounds_every_example_over_all_blocks_together(setting, clip):
    network, parameters, codes, dense = setting
    flat = torch.cat([value.flatten(1) for value in dense.values()], 1).double()
    expected = (flat * torch.clamp(clip / flat.norm(dim=1), max=1.0)[:, None]).sum(0)
    sums = clipped_sum(network.gradient(parameters, codes), clip)
    assert torch.allclose(
        torch.cat([sums[name].flatten() for name in dense]), expected, rtol=1e-4, atol=1e-5
    )
    for example in range(17):
        alone = clipped_sum(network.gradient(parameters, codes[example : example + 1]), clip)
        assert torch.sqrt(sum(value.square().sum() for value in alone.values())) <= clip


def test_examples_without_a_finite_norm_contribute_nothing_and_an_empty_batch_gives_zeros():
    block = {"w": Outer(torch.tensor([[float("nan"), 1.0], [1.0, 0.0]]), torch.ones(2, 1))}
    assert clipped_sum(block, 1.0)["w"].isfinite().all()
    blocks = {
        "a": Outer(torch.zeros(0, 2), torch.zeros(0, 3)),
        "b": Lookup(torch.zeros(0, dtype=torch.long), torch.zeros(0, 3), 4),
        "c": LayeredOuter(torch.zeros(0, 2, 5), torch.zeros(0, 3, 5), torch.ones(2, 3)),
    }
    shapes = {name: tuple(v.shape) for name, v in clipped_sum(blocks, 1.0).items()}
    assert shapes == {"a": (2, 3), "b": (4, 3), "c": (2, 3, 5)}
