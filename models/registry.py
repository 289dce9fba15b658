"""The methods, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType

from cloister.errors import InputError
from models.dpview.synthesizer import DPVIEW_RECIPES, DPView
from models.kamino.paper.recipes import PAPER_RECIPES
from models.kamino.recipe import KAMINO
from models.kamino.synthesizer import Kamino
from models.mixture.synthesizer import MixtureSynthesizer
from models.protocol import AnySynthesizer, Progress, silent

METHODS: dict[str, Callable[[Progress], AnySynthesizer]] = {
    "mixture": MixtureSynthesizer,
    **{recipe.name: partial(Kamino, recipe=recipe) for recipe in (KAMINO, *PAPER_RECIPES)},
    **{recipe.name: partial(DPView, recipe=recipe) for recipe in DPVIEW_RECIPES},
}

FORMER = MappingProxyType({"cloister": "mixture"})
"""Names of version 0.1, whose specs, models and certificates have them."""


def create(name: str, progress: Progress = silent) -> AnySynthesizer:
    """The method of that name; InputError if there is none."""
    return METHODS[present_name(name)](progress)


def present_name(name: str) -> str:
    """The name of a method today, from that or a former one.

    Raises:
        InputError: there is no such method.
    """
    found = FORMER.get(name, name)
    if found not in METHODS:
        raise InputError(f"no method '{name}'; use one of {', '.join(sorted(METHODS))}")
    return found
