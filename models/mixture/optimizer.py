"""Fitting a mixture of products to noisy tables, by Adam on half the chi-square.

The gradient is written out: with one matrix product for each table it costs about as much as the
tables themselves. Everything here is post-processing of released values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import Floats
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.mixture.factors import QuasiIndependence, joint_factors
from cloister.models.mixture.products import FactorView, Layout, Mixture
from cloister.models.protocol import Progress, silent
from cloister.schema.partition import Partition

_FIRST_DECAY = 0.9
"""Decay of Adam's first moment per step; Adam's default."""

_SECOND_DECAY = 0.99
"""Decay of Adam's second moment per step; Adam's default is 0.999."""

_HOST = torch.device("cpu")
"""The device of mixtures and targets outside the optimizer."""


class Objective(Protocol):
    """A target of the fit for one joint table of the mixture."""

    @property
    def views(self) -> tuple[FactorView, ...]:
        """The axes of the table; it has one line for each joint part of all but the last."""
        ...

    def loss_and_gradient(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Half the chi-square of a table, a number, and its slope by the table.

        Shapes: (product of all views but the last, size of the last).
        """
        ...

    def to(self, device: torch.device) -> Objective:
        """The same target with its numbers on a device."""
        ...


@dataclass(frozen=True)
class TableTarget:
    """A noisy marginal as the fit needs it: shares of rows, inverse deviations, in order of views.

    Shapes: ``shares`` and ``precision`` (product of all views but the last, size of the last).
    """

    views: tuple[FactorView, ...]
    shares: Tensor
    precision: Tensor

    @classmethod
    def of(cls, measured: NoisyTable, layout: Layout, rows: int) -> TableTarget:
        """The target of a marginal of a table of ``rows`` rows."""
        views, axes = layout.views(measured.partitions)
        shape = (-1, views[-1].size)
        deviation = (
            np.broadcast_to(measured.deviation, measured.counts.shape)
            .transpose(axes)
            .reshape(shape)
        )
        shares = measured.counts.transpose(axes).reshape(shape) / rows
        return cls(
            views, torch.as_tensor(shares).float(), torch.as_tensor(rows / deviation).float()
        )

    def loss_and_gradient(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Objective`."""
        error = (table - self.shares) * self.precision
        return error.square().sum() / 2, error * self.precision

    def to(self, device: torch.device) -> TableTarget:
        """See :class:`Objective`."""
        return TableTarget(self.views, self.shares.to(device), self.precision.to(device))


@dataclass(frozen=True)
class MeanTarget:
    """The ``mean`` over rows of ``numbers``, one for each cell of a joint table.

    ``precision`` is its inverse deviation.
    """

    views: tuple[FactorView, ...]
    numbers: Tensor
    mean: float
    precision: float

    @classmethod
    def of(
        cls,
        coarsenings: Sequence[Partition],
        numbers: Floats,
        mean: float,
        deviation: float,
        layout: Layout,
    ) -> MeanTarget:
        """The target for numbers with one axis a coarsening."""
        views, axes = layout.views(coarsenings)
        ordered = numbers.transpose(axes).reshape(-1, views[-1].size)
        return cls(views, torch.as_tensor(ordered).float(), mean, 1 / deviation)

    def loss_and_gradient(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Objective`."""
        error = ((table * self.numbers).sum().double() - self.mean) * self.precision
        return error.square() / 2, error * self.precision * self.numbers

    def to(self, device: torch.device) -> MeanTarget:
        """See :class:`Objective`."""
        return MeanTarget(self.views, self.numbers.to(device), self.mean, self.precision)


@dataclass(frozen=True)
class Targets:
    """All targets of a fit, sorted by how they are computed.

    One-way tables of whole factors are computed together: ``levels`` (m,) are numbers among all
    levels, ``shares`` and ``precision`` (m,) their targets. Every other target is in ``joint``,
    with the places of its views among the different ``views``, each of which is computed once.
    """

    joint: tuple[tuple[Objective, tuple[int, ...]], ...]
    views: tuple[FactorView, ...]
    levels: Tensor
    shares: Tensor
    precision: Tensor
    _scratch: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @classmethod
    def of(
        cls, objectives: Sequence[Objective], layout: Layout, device: torch.device = _HOST
    ) -> Targets:
        """The targets, sorted by kind, with their tensors on a device."""
        whole = [aim for aim in objectives if isinstance(aim, TableTarget) and _is_whole(aim)]
        joint = [
            aim for aim in objectives if not isinstance(aim, TableTarget) or not _is_whole(aim)
        ]
        views = {_key(view): view for aim in joint for view in aim.views}
        index = {key: number for number, key in enumerate(views)}
        levels = [
            torch.arange(layout.edges[t.views[0].factor], layout.edges[t.views[0].factor + 1])
            for t in whole
        ]
        none = torch.zeros(0)
        return cls(
            tuple(
                (aim.to(device), tuple(index[_key(view)] for view in aim.views)) for aim in joint
            ),
            tuple(view.to(device) for view in views.values()),
            torch.cat([none.long(), *levels]).to(device),
            torch.cat([none, *(target.shares.flatten() for target in whole)]).to(device),
            torch.cat([none, *(target.precision.flatten() for target in whole)]).to(device),
        )

    def scratch(self, like: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Memory for the shares of each view and their slopes, the same in every step.

        ``like`` are the shares of the mixture. Fresh memory would take as long as the arithmetic:
        the system hands it out page by page.
        """
        if not self._scratch:
            sizes = [(view.size, like.shape[1]) for view in self.views]
            self._scratch.extend((like.new_empty(size), like.new_empty(size)) for size in sizes)
        return tuple(self._scratch)


def _key(view: FactorView) -> tuple[int, int, bytes]:
    return view.factor, view.size, b"" if view.index is None else view.index.numpy().tobytes()


def _is_whole(target: TableTarget) -> bool:
    return len(target.views) == 1 and target.views[0].index is None


class Fit:
    """A mixture under training: logits of component weights and of all levels of all factors.

    The loss is half the chi-square of the targets plus the ``dependence_penalty``, see
    :func:`add_dependence_penalty`. Adam divides each slope by its recent size; with a ``floor``, as
    a multiple of the root mean square of these sizes, small slopes make small steps. Steps are
    computed on the ``device``; targets and mixtures are on the host.
    """

    def __init__(
        self,
        start: Mixture,
        dependence_penalty: float,
        floor: float = 0.0,
        device: torch.device = _HOST,
    ) -> None:
        self._layout, self._dependence_penalty, self._floor = (
            start.layout,
            dependence_penalty,
            floor,
        )
        self._device, begin = device, start.to(device)
        self._joint = joint_factors(start.layout, device)
        self._parameters = [torch.log(begin.weights + 1e-12), torch.log(begin.shares + 1e-12)]
        self._mean = [torch.zeros_like(p) for p in self._parameters]
        self._square = [torch.zeros_like(p) for p in self._parameters]
        self._sizes = [torch.empty_like(p) for p in self._parameters]
        self._steps = 0

    @property
    def mixture(self) -> Mixture:
        """The mixture now, on the host."""
        return self._now().to(_HOST)

    def _now(self) -> Mixture:
        weights, logits = self._parameters
        shares = torch.cat([torch.softmax(logits[a:b], 0) for a, b in pairwise(self._layout.edges)])
        return Mixture(self._layout, torch.softmax(weights, 0), shares)

    def descend(
        self,
        targets: Sequence[Objective],
        steps: int,
        first_rate: float,
        last_rate: float,
        progress: Progress = silent,
    ) -> None:
        """Steps of Adam on the loss, at a rate that changes linearly from first to last."""
        sorted_targets = Targets.of(targets, self._layout, self._device)
        for step in range(steps):
            mixture = self._now()
            _, to_weights, to_shares = gradient(mixture, sorted_targets)
            penalty = self._dependence_penalty
            add_dependence_penalty(mixture, penalty, to_weights, to_shares, self._joint)
            rate = first_rate + (last_rate - first_rate) * step / steps
            self._update(
                [_weights_back(mixture, to_weights), _shares_back(mixture, to_shares)], rate
            )
            progress(step + 1, steps)

    def _update(self, gradients: Sequence[Tensor], rate: float) -> None:
        self._steps += 1
        for index, slope in enumerate(gradients):
            self._mean[index].mul_(_FIRST_DECAY).add_(slope, alpha=1 - _FIRST_DECAY)
            self._square[index].mul_(_SECOND_DECAY).addcmul_(slope, slope, value=1 - _SECOND_DECAY)
            size = torch.div(
                self._square[index], 1 - _SECOND_DECAY**self._steps, out=self._sizes[index]
            ).sqrt_()
            size.add_(self._floor * _root_mean_square(size) + 1e-10)
            self._parameters[index].addcdiv_(
                self._mean[index], size, value=-rate / (1 - _FIRST_DECAY**self._steps)
            )


def _root_mean_square(numbers: Tensor) -> Tensor:
    return torch.linalg.vector_norm(numbers) / numbers.numel() ** 0.5


def gradient(mixture: Mixture, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Half the chi-square of all targets, a number, and its slopes by weights and by shares.

    No number is read back from the device, which would wait for all pending work.
    """
    to_weights, to_shares = torch.zeros_like(mixture.weights), torch.zeros_like(mixture.shares)
    scratch = targets.scratch(mixture.shares)
    # one-way tables of whole factors, all at once: expected share of level l is sum_c w_c s_lc,
    # errors are in deviations, so that the loss is sum (e_l / d_l)^2 / 2 and its slope e_l / d_l^2
    shares = mixture.shares[targets.levels]
    error = (shares @ mixture.weights - targets.shares) * targets.precision
    slope = error * targets.precision
    to_weights += slope @ shares
    to_shares.index_add_(0, targets.levels, slope[:, None] * mixture.weights)
    loss = error.square().sum() / 2
    # every other table: shares of the parts of each view once, whatever tables need them; slopes
    # by these parts are summed over the tables, and go back to levels once for each factor
    views = [
        mixture.view_shares(view, scratch_shares)
        for view, (scratch_shares, _) in zip(targets.views, scratch, strict=True)
    ]
    slopes = [slope_scratch.zero_() for _, slope_scratch in scratch]
    for aim, places in targets.joint:
        loss = loss + _add_gradient(
            aim,
            mixture.weights,
            [views[index] for index in places],
            [slopes[index] for index in places],
            to_weights,
        )
    for factor in range(len(mixture.layout.factors)):
        indices = [index for index, view in enumerate(targets.views) if view.factor == factor]
        _scatter(
            [targets.views[index] for index in indices],
            [slopes[index] for index in indices],
            to_shares[mixture.layout.edges[factor] : mixture.layout.edges[factor + 1]],
        )
    return loss, to_weights, to_shares


def add_dependence_penalty(
    mixture: Mixture,
    dependence_penalty: float,
    to_weights: Tensor,
    to_shares: Tensor,
    joint: Sequence[QuasiIndependence] = (),
) -> None:
    """Add the slopes of the penalty: the information, in nats, that a component has on its row.

    It is summed over the factors, so it is at least their total correlation: of mixtures that fit
    equally well one of great entropy is preferred, without dependence that was not measured. Of the
    ``joint`` factors it holds what their attributes tell of each other, too.
    """
    levels = mixture.shares @ mixture.weights
    ratios = mixture.shares / levels[:, None]
    logs = ratios.add_(1e-12).log_()
    for factor in joint:
        logs[factor.levels] += factor.excess(levels[factor.levels])[:, None]
    to_shares.addcmul_(logs, mixture.weights[None], value=dependence_penalty)
    to_weights.add_(logs.mul_(mixture.shares).sum(0), alpha=dependence_penalty)


def _add_gradient(
    aim: Objective,
    weights: Tensor,
    views: Sequence[Tensor],
    slopes: Sequence[Tensor],
    to_weights: Tensor,
) -> Tensor:
    """Half the chi-square of an objective; its slopes are added to those of views and weights.

    ``views`` are the shares (size, components) of its views.
    """
    # forward: folded[k] is w_c times the shares of the first k views, (joint parts, components);
    # the table is its product with the last view's shares, summed over the components
    folded = [weights[None]]
    for shares in views[:-1]:
        folded.append((folded[-1][:, None] * shares[None]).flatten(0, 1))
    loss, slope = aim.loss_and_gradient(folded[-1] @ views[-1].T)
    # backward, by the chain rule: ``back`` is the slope by folded[k], from the last k to the first
    slopes[-1].addmm_(slope.T, folded[-1])
    back = slope @ views[-1]
    for index in range(len(views) - 2, 0, -1):
        back = back.view(-1, *views[index].shape)
        slopes[index].add_((back * folded[index][:, None]).sum(0))
        back = back.mul_(views[index][None]).sum(1)
    # folded[0] is one line, the weights: slopes by the first view need no sum over lines
    if len(views) > 1:
        slopes[0].addcmul_(back, weights)
        back.mul_(views[0])
    to_weights += back.sum(0)
    return loss


def _scatter(views: Sequence[FactorView], slopes: Sequence[Tensor], to_shares: Tensor) -> None:
    """Add the slopes by the parts of a factor's views to those by its levels (levels, components).

    A level is in one part of each view; the slopes of all its parts are summed in one pass.
    """
    parts, of_parts, begin = [], [], 0
    for view, slope in zip(views, slopes, strict=True):
        if view.index is None:
            to_shares += slope
        else:
            parts.append(view.index + begin)
            of_parts.append(slope)
            begin += view.size
    if parts:
        to_shares += torch.nn.functional.embedding_bag(
            torch.stack(parts, 1), torch.cat(of_parts), mode="sum"
        )


def _weights_back(mixture: Mixture, slope: Tensor) -> Tensor:
    # the slope by logits of a softmax p: p (slope - <p, slope>)
    return mixture.weights * (slope - (mixture.weights * slope).sum())


def _shares_back(mixture: Mixture, slope: Tensor) -> Tensor:
    product = mixture.shares * slope
    edges = mixture.layout.edges
    for begin, end in pairwise(edges):
        block = slice(begin, end)
        product[block].addcmul_(mixture.shares[block], product[block].sum(0)[None], value=-1)
    return product
