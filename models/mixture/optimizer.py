"""Fitting a mixture of products to noisy tables, by Adam on half the chi-square.

The gradient is written out: with one matrix product for each table it costs about as much as the
tables themselves. Everything here is post-processing of released values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import Floats
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.mixture.factors import QuasiIndependence, joint_factors
from cloister.models.mixture.products import FactorView, Layout, Mixture, multiplied
from cloister.models.protocol import Progress, silent
from cloister.schema.partition import Partition

if TYPE_CHECKING:
    from cloister.models.mixture.plan import MixtureParameters

_FIRST_DECAY = 0.9
"""Decay of Adam's first moment per step; Adam's default."""

_SECOND_DECAY = 0.99
"""Decay of Adam's second moment per step; Adam's default is 0.999."""

_HOST = torch.device("cpu")
"""The device of mixtures and targets outside the optimizer."""

_LEAST = 1e-12
"""Least share of a level in a denominator or a logarithm."""

_OF_TARGET = 0.2
"""Part of the penalty on dependence that factors with a declared target bear (docs/papers.md)."""


@dataclass(frozen=True)
class DependencePenalty:
    """What dependence costs a fit: ``per_nat`` of the information of components on each factor.

    It costs less where a factor has one of the ``targets``: more tables are counted of these than
    of others, and what an analyst asks is how others tell of them.
    """

    per_nat: float
    targets: tuple[str, ...] = ()

    @classmethod
    def of(cls, parameters: MixtureParameters) -> Self:
        """That of a plan: targets are those that have tables."""
        return cls(parameters.dependence_penalty, parameters.targets.targets)

    def of_levels(self, layout: Layout) -> Tensor:
        """The loss per nat of each level's factor; shape (levels of all factors, 1)."""
        losses = torch.full((layout.edges[-1], 1), self.per_nat)
        for factor, (begin, end) in zip(layout.factors, pairwise(layout.edges), strict=True):
            if not set(self.targets).isdisjoint(factor.attributes):
                losses[begin:end] *= _OF_TARGET
        return losses


class Objective(Protocol):
    """A target of the fit for one joint table of the mixture."""

    @property
    def views(self) -> tuple[FactorView, ...]:
        """The axes of the table; it has one line for each joint part of all but the last."""
        ...

    def slope(self, table: Tensor) -> Tensor:
        """The slope of half the chi-square by a table.

        Shapes: (product of all views but the last, size of the last).
        """
        ...

    def to(self, device: torch.device) -> Objective:
        """The same target with its numbers on a device."""
        ...


@dataclass(frozen=True)
class TableTarget:
    """A noisy marginal as the fit needs it: shares of rows and their precision, in order of views.

    Shapes: ``precision``, the inverse variance of each share, and ``weighted``, its product with
    the share: (product of all views but the last, size of the last).
    """

    views: tuple[FactorView, ...]
    weighted: Tensor
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
        precision = np.square(rows / deviation)
        return cls(
            views, torch.as_tensor(shares * precision).float(), torch.as_tensor(precision).float()
        )

    def slope(self, table: Tensor) -> Tensor:
        """See :class:`Objective`."""
        return (table * self.precision).sub_(self.weighted)

    def to(self, device: torch.device) -> TableTarget:
        """See :class:`Objective`."""
        return TableTarget(self.views, self.weighted.to(device), self.precision.to(device))


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

    def slope(self, table: Tensor) -> Tensor:
        """See :class:`Objective`."""
        error = ((table * self.numbers).sum().double() - self.mean) * self.precision
        return error * self.precision * self.numbers

    def to(self, device: torch.device) -> MeanTarget:
        """See :class:`Objective`."""
        return MeanTarget(self.views, self.numbers.to(device), self.mean, self.precision)


@dataclass(frozen=True)
class Targets:
    """All targets of a fit, and the parts of factors that they need, each computed once.

    Level ``levels[i]`` of the mixture is in part ``parts[i]`` of ``size`` parts, which are those of
    all different views, one view after the other, then the sums of views that have products of
    such: ``products`` has the numbers (m, k) of the sums, and the part (m,) of each. Tables of one
    view
    are computed together: ``alone`` (m,) are their parts, ``weighted`` and ``precision`` (m,) as of
    :class:`TableTarget`. Every other target is in ``joint``, with the parts of each of its views.
    """

    size: int
    levels: Tensor
    parts: Tensor
    products: tuple[tuple[Tensor, Tensor], ...]
    alone: Tensor
    weighted: Tensor
    precision: Tensor
    joint: tuple[tuple[Objective, tuple[slice, ...]], ...]
    _scratch: list[Tensor] = field(default_factory=list)

    @classmethod
    def of(
        cls, objectives: Sequence[Objective], layout: Layout, device: torch.device = _HOST
    ) -> Targets:
        """The targets, sorted by kind, with their tensors on a device."""
        views = {_key(view): view for aim in objectives for view in aim.views}
        ends = np.cumsum([0, *(view.size for view in views.values())]).tolist()
        places = {key: slice(a, b) for key, (a, b) in zip(views, pairwise(ends), strict=True)}
        parts, levels, products = list[Tensor](), list[Tensor](), list[tuple[Tensor, Tensor]]()
        size = ends[-1]
        for end, view in zip(ends, views.values(), strict=False):
            begin, inner = layout.edges[view.factor], view.products
            index = torch.arange(view.size) if view.index is None else view.index
            if inner is None:
                parts.append(end + index)
                levels.append(torch.arange(begin, layout.edges[view.factor + 1]))
            else:
                parts.append(size + inner.sums)
                levels.append(begin + inner.levels)
                products.append((size + inner.rows, end + index))
                size += inner.size
        known = torch.arange(ends[-1])
        single = [a for a in objectives if isinstance(a, TableTarget) and len(a.views) == 1]
        joint = [a for a in objectives if not isinstance(a, TableTarget) or len(a.views) > 1]
        none = torch.zeros(0)
        return cls(
            size,
            torch.cat([none.long(), *levels]).to(device),
            torch.cat([none.long(), *parts]).to(device),
            tuple(_joined(products, device)),
            torch.cat([none.long(), *(known[places[_key(a.views[0])]] for a in single)]).to(device),
            torch.cat([none, *(aim.weighted.flatten() for aim in single)]).to(device),
            torch.cat([none, *(aim.precision.flatten() for aim in single)]).to(device),
            tuple((aim.to(device), tuple(places[_key(v)] for v in aim.views)) for aim in joint),
        )

    def scratch(self, like: Tensor) -> tuple[Tensor, ...]:
        """Memory for what a step knows of each part and of each level's part, kept between steps.

        ``like`` are the shares of the mixture. Fresh memory would take as long as the arithmetic:
        the system hands it out page by page.
        """
        if not self._scratch:
            lines = (self.size,) * 4 + (len(self.levels),)
            self._scratch.extend(like.new_empty(size, like.shape[1]) for size in lines)
        return tuple(self._scratch)


def _joined(
    products: Sequence[tuple[Tensor, Tensor]], device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Products and their parts, those of equally many levels together."""
    for levels in {rows.shape[1] for rows, _ in products}:
        some = [(rows, parts) for rows, parts in products if rows.shape[1] == levels]
        rows, parts = (torch.cat(side) for side in zip(*some, strict=True))
        yield rows.to(device), parts.to(device)


def _key(view: FactorView) -> tuple[int, int, tuple[bytes, ...]]:
    inner = view.products
    tensors = (view.index, *((inner.levels, inner.sums, inner.rows) if inner else ()))
    stored = tuple(b"" if tensor is None else tensor.numpy().tobytes() for tensor in tensors)
    return view.factor, view.size, stored


class Fit:
    """A mixture under training: logits of component weights and of all levels of all factors.

    The loss is half the chi-square of the targets plus the ``penalty``, see
    :func:`add_dependence_penalty`. Adam divides each slope by its recent size; with a ``floor``, as
    a multiple of the root mean square of these sizes, small slopes make small steps. Steps are
    computed on the ``device``; targets and mixtures are on the host.
    """

    def __init__(
        self,
        start: Mixture,
        penalty: DependencePenalty,
        floor: float = 0.0,
        device: torch.device = _HOST,
    ) -> None:
        self._layout, self._floor = start.layout, floor
        self._device, begin = device, start.to(device)
        self._losses = penalty.of_levels(start.layout).to(device)
        self._joint = joint_factors(start.layout, device)
        reached = start.layout.reached
        self._reached = None if reached is None else (reached[0].to(device), reached[1].to(device))
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
        shares = torch.cat([torch.softmax(logits[part], 0) for part in self._layout.ranges])
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
            to_weights, to_shares = gradient(mixture, sorted_targets)
            add_dependence_penalty(
                *(mixture, self._losses, to_weights, to_shares, self._joint, self._reached)
            )
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


def gradient(mixture: Mixture, targets: Targets) -> tuple[Tensor, Tensor]:
    """The slopes of half the chi-square of all targets, by weights and by shares.

    No number is read back from the device, which would wait for all pending work.
    """
    weights = mixture.weights
    # shares of the parts (parts, components), and their products with the weights
    shares, weighted, to_parts, to_weighted, by_level = targets.scratch(mixture.shares)
    torch.index_select(mixture.shares, 0, targets.levels, out=by_level)
    shares.zero_().index_add_(0, targets.parts, by_level)
    for rows, parts in targets.products:
        shares.index_add_(0, parts, multiplied([shares[sums] for sums in rows.T]))
    torch.mul(shares, weights, out=weighted)
    to_parts.zero_()
    to_weighted.zero_()
    # tables of one view: the expected share of a part is the sum over components of its products
    slope = weighted.sum(1)[targets.alone] * targets.precision - targets.weighted
    to_weighted.index_add_(0, targets.alone, slope[:, None].expand(-1, len(weights)))
    for aim, places in targets.joint:
        _add_slopes(aim, places, (shares, weighted), (to_parts, to_weighted))
    # the products' slopes go back to their factors, those of parts to all their levels
    to_weights = torch.mul(shares, to_weighted, out=weighted).sum(0)
    to_parts.addcmul_(to_weighted, weights)
    for rows, parts in targets.products:
        factors, slope = [shares[sums] for sums in rows.T], to_parts[parts]
        for index, sums in enumerate(rows.T):
            # by the product rule: the slope of one sum is the product of all others
            remaining = [slope, *factors[:index], *factors[index + 1 :]]
            to_parts.index_add_(0, sums, multiplied(remaining))
    torch.index_select(to_parts, 0, targets.parts, out=by_level)
    to_shares = torch.zeros_like(mixture.shares).index_add_(0, targets.levels, by_level)
    return to_weights, to_shares


def add_dependence_penalty(
    mixture: Mixture,
    losses: Tensor,
    to_weights: Tensor,
    to_shares: Tensor,
    joint: Sequence[QuasiIndependence] = (),
    reached: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Add the slopes of the penalty: the information, in nats, that a component has on its row.

    It is summed over the factors, so it is at least their total correlation: of mixtures that fit
    equally well one of great entropy is preferred, without dependence that was not measured. Of the
    ``joint`` factors it holds what their attributes tell of each other, too. ``losses`` are those
    per nat, shape (levels of all factors, 1). What a component tells of a level in a branch counts
    for the rows in it alone: ``reached`` are those of the layout.
    """
    weights = mixture.weights[None]
    reach = None if reached is None else _reach(mixture.shares, reached)
    if reach is None:
        levels = mixture.shares @ mixture.weights
    else:
        weights = weights * reach
        levels = (mixture.shares * weights).sum(1) / (weights.sum(1) + _LEAST)
    ratios = mixture.shares / levels.clamp(min=_LEAST)[:, None]
    logs = ratios.add_(_LEAST).log_()
    for factor in joint:
        logs[factor.levels] += factor.excess(levels[factor.levels])[:, None]
    logs.mul_(losses)
    to_shares.addcmul_(logs, weights)
    nats = logs.mul_(mixture.shares)
    if reach is None or reached is None:
        to_weights.add_(nats.sum(0))
    else:
        to_weights.add_((nats * reach).sum(0))
        to_shares.index_add_(0, reached[1], (nats * mixture.weights)[reached[0]])


def _reach(shares: Tensor, reached: tuple[Tensor, Tensor]) -> Tensor:
    """The shares (levels, components) of rows in a branch that has the level; 1 without any."""
    levels, branches = reached
    reach = torch.ones_like(shares)
    reach[levels] = 0.0
    return reach.index_add_(0, levels, shares[branches])


def _add_slopes(
    aim: Objective,
    places: Sequence[slice],
    parts: tuple[Tensor, Tensor],
    slopes: tuple[Tensor, Tensor],
) -> None:
    """Add the slopes of an objective by its views' shares, of the first by their products.

    ``parts`` are the shares of all parts and their products with the weights, ``slopes`` those by
    either.
    """
    if len(places) == 1:
        slopes[1][places[0]].add_(aim.slope(parts[1][places[0]].sum(1)[None]).T)
        return
    # forward: folded[k] is w_c times the shares of the first k + 1 views, (joint parts,
    # components); the table is its product with the last view's shares, summed over components
    views = [parts[0][own_parts] for own_parts in places]
    folded = [parts[1][places[0]]]
    for shares in views[1:-1]:
        folded.append((folded[-1][:, None] * shares[None]).flatten(0, 1))
    slope = aim.slope(folded[-1] @ views[-1].T)
    # backward, by the chain rule: ``back`` is the slope by folded[k], from the last k to the first
    slopes[0][places[-1]].addmm_(slope.T, folded[-1])
    if len(views) == 2:
        slopes[1][places[0]].addmm_(slope, views[-1])
        return
    back = slope @ views[-1]
    for index in range(len(views) - 2, 0, -1):
        back = back.view(-1, *views[index].shape)
        slopes[0][places[index]].add_((back * folded[index - 1][:, None]).sum(0))
        back = back.mul_(views[index][None]).sum(1)
    slopes[1][places[0]].add_(back)


def _weights_back(mixture: Mixture, slope: Tensor) -> Tensor:
    # the slope by logits of a softmax p: p (slope - <p, slope>)
    return mixture.weights * (slope - (mixture.weights * slope).sum())


def _shares_back(mixture: Mixture, slope: Tensor) -> Tensor:
    product = mixture.shares * slope
    for part in mixture.layout.ranges:
        product[part].addcmul_(mixture.shares[part], product[part].sum(0)[None], value=-1)
    return product
