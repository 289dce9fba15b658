"""Units of the schema sequence: single attributes, or hyper-attributes made of runs of small ones.

Source: Kamino section 4.3, "Optimizations for extreme domain sizes".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cloister.models.kamino.sizes import Runs


@dataclass(frozen=True)
class Units:
    """A partition of the places 0..k-1 into runs, over attributes of ``sizes`` (k,) levels."""

    runs: Runs
    sizes: tuple[int, ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of joint levels of each unit."""
        return tuple(math.prod(self.shape(unit)) for unit in range(len(self.runs)))

    def shape(self, unit: int) -> tuple[int, ...]:
        """Levels of each attribute of a unit."""
        return tuple(self.sizes[place] for place in self.runs[unit])

    def at(self, place: int) -> tuple[int, int]:
        """The unit of a place, and which of its attributes that is."""
        unit = next(at for at, run in enumerate(self.runs) if place in run)
        return unit, self.runs[unit].index(place)

    def join(self, codes: Tensor, units: int) -> Tensor:
        """Joint levels (n, units) of the first ``units`` units, from levels (n, places)."""
        columns = [self._join(codes, run) for run in self.runs[:units]]
        return torch.stack(columns, 1) if columns else codes[:, :0]

    def separate(self, levels: Tensor, unit: int) -> Tensor:
        """Levels of the attributes of one unit (n, attributes), from its joint levels (n,)."""
        return torch.stack(torch.unravel_index(levels, self.shape(unit)), 1)

    def _join(self, codes: Tensor, run: tuple[int, ...]) -> Tensor:
        joint = torch.zeros_like(codes[:, 0])
        for place in run:
            joint = joint * self.sizes[place] + codes[:, place]
        return joint
