"""The methods, by name: the code of one is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType

from cloister.errors import InputError
from cloister.models.persons.synthesizer import OfPersons
from cloister.models.protocol import AnySynthesizer, Progress, silent


@dataclass(frozen=True)
class Deferred:
    """The method ``name`` of a module that is imported when the method is made.

    The module has a function ``synthesizer_of(name, progress)``, and imports what only a fit needs
    when it fits: a plan costs neither the time nor the memory of those libraries.
    """

    name: str
    module: str

    def __call__(self, progress: Progress) -> AnySynthesizer:
        """The method."""
        made: AnySynthesizer = import_module(self.module).synthesizer_of(self.name, progress)
        return made


def _deferred(module: str, *names: str) -> Iterator[tuple[str, Deferred]]:
    return ((name, Deferred(name, module)) for name in names)


METHODS: dict[str, Callable[[Progress], AnySynthesizer]] = {
    **dict(_deferred("cloister.models.mixture.synthesizer", "mixture")),
    **dict(
        _deferred(
            "cloister.models.kamino.synthesizer",
            "kamino",
            "kamino-sequential",
            "kamino-parallel",
            "kamino-unsequenced",
            "kamino-unweighed",
        )
    ),
    **dict(_deferred("cloister.models.kamino.paper.synthesizer", "kamino-paper")),
    **dict(
        _deferred(
            "cloister.models.dpview.synthesizer",
            "dpview",
            "dpview+",
            "dpview-paper",
            "dpview+-paper",
            "independent",
        )
    ),
    **dict(
        _deferred(
            "cloister.models.copula.synthesizer",
            "copula",
            "copula-paper",
            "copula-identity",
            "copula-ones",
        )
    ),
    **dict(
        _deferred(
            "cloister.models.deniability.synthesizer",
            "bayes",
            "deniability",
            "deniability-paper",
        )
    ),
    **dict(
        _deferred(
            "cloister.models.relational.synthesizer",
            "relational",
            "relational-mixture",
            "relational-dpview",
            "relational-copula",
            "relational-independent",
        )
    ),
    **dict(_deferred("cloister.models.relational.paper.synthesizer", "relational-paper")),
}

FORMER = MappingProxyType({"cloister": "mixture"})
"""Names of version 0.1, whose specs, models and certificates have them."""


def create(name: str, progress: Progress = silent) -> AnySynthesizer:
    """The method of that name, of one table for persons too; InputError if there is none."""
    method = METHODS[present_name(name)](progress)
    return method if method.of_database else OfPersons(method)


def present_name(name: str) -> str:
    """The name of a method today, from that or a former one.

    Raises:
        InputError: there is no such method.
    """
    found = FORMER.get(name, name)
    if found not in METHODS:
        raise InputError(f"no method '{name}'; use one of {', '.join(sorted(METHODS))}")
    return found
