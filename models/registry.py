"""The methods, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cloister.errors import InputError
from models.dpview.synthesizer import RECIPES as VIEWS
from models.dpview.synthesizer import DPView
from models.kamino.recipes import RECIPES
from models.kamino.synthesizer import Kamino
from models.mixture.synthesizer import Cloister
from models.protocol import AnySynthesizer, Progress, silent

METHODS: dict[str, Callable[[Progress], AnySynthesizer]] = {
    "cloister": Cloister,
    **{recipe.name: partial(Kamino, recipe=recipe) for recipe in RECIPES},
    **{view.name: partial(DPView, recipe=view) for view in VIEWS},
}


def create(name: str, progress: Progress = silent) -> AnySynthesizer:
    """The method of that name; InputError if there is none."""
    require_method(name)
    return METHODS[name](progress)


def require_method(name: str) -> None:
    """Check that there is a method of that name.

    Raises:
        InputError: there is none.
    """
    if name not in METHODS:
        raise InputError(f"no method '{name}'; use one of {', '.join(sorted(METHODS))}")
