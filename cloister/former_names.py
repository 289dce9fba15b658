"""What earlier versions called otherwise: modules, for what they saved, and keys of specs.

Models in MLflow import :mod:`cloister.models.storage` as ``models.storage``, and deployments of
Prefect name ``flows.release``. Whoever has a package of such a name keeps it: this finder is the
last.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType

PRESENT = MappingProxyType(
    {
        "cloister.privacy.randomness": "cloister.privacy.mechanisms.randomness",  # 0.1
        "flows": "cloister.flows",  # to 0.2
        "flows.release": "cloister.flows.release",
        "models": "cloister.models",
        "models.storage": "cloister.models.storage",
    }
)
"""Present names by former ones; of no module but those that something saved imports."""

OPTIONS = MappingProxyType(
    {"deniability": {"test": "randomised"}, "dpview": {"linking": "priority"}, "relational": {}}
)
"""Keys of ``release`` that stood for ``options`` to 0.2, with the defaults that no digest has."""

IGNORED_OPTIONS = frozenset({"deniability", "relational"})
"""Those keys that a method without options ignored to 0.2: a release of then may be unfinished."""

EXACT_OPTIONS = frozenset({"alpha", "epsilon", "epsilon0", "gamma"})
"""Options under those keys that a digest has as exact fractions."""


EVENTS = MappingProxyType({"UncountedRecords": "PlausiblyDeniable"})
"""Names under which ledgers hold events, by those of today."""


class FormerNames(MetaPathFinder, Loader):
    """Finds the modules of earlier versions, each of which has the names of the present one."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - a finder's argument
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The module of a former name, unless somebody else has the package that holds it."""
        package = fullname.rpartition(".")[0]
        if fullname not in PRESENT or (package in PRESENT and not _is_ours(package)):
            return None
        holds_others = any(name.startswith(f"{fullname}.") for name in PRESENT)
        return ModuleSpec(fullname, self, is_package=holds_others)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names of the present one."""
        present = vars(import_module(PRESENT[module.__name__]))
        vars(module).update({name: of for name, of in present.items() if not name.startswith("__")})


def _is_ours(package: str) -> bool:
    spec = sys.modules[package].__spec__
    return spec is not None and isinstance(spec.loader, FormerNames)


def install() -> None:
    """Ask this finder after all others, once."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.append(FormerNames())
