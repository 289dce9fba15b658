"""Cloister: differentially private synthetic tables that keep their integrity constraints.

In Python: :func:`draft`, :func:`check`, :func:`measure`, :func:`plan`, :func:`release`,
:func:`evaluate`, :func:`approve` and :func:`load`. They call the flows, and are imported when first
used, so that importing a schema starts no orchestration.
"""

from importlib import import_module
from typing import Any
from warnings import catch_warnings, filterwarnings

from cloister import former_names
from cloister.version import __version__

former_names.install()

__all__ = [
    "__version__",
    "approve",
    "check",
    "draft",
    "evaluate",
    "load",
    "measure",
    "plan",
    "release",
]


def __getattr__(name: str) -> Any:
    """A public function of ``cloister.flows.python``, imported when first used."""
    if name not in __all__:
        raise AttributeError(f"module 'cloister' has no attribute '{name}'")
    import_module("cloister.tasks.home.home").Home.current().configure()
    with catch_warnings():  # the home, and Prefect's in it, are made by what first writes there
        filterwarnings("ignore", "Failed to create the Prefect home directory")
        return getattr(import_module("cloister.flows.python"), name)


def __dir__() -> list[str]:
    """The public names, exactly."""
    return __all__
