"""The built-in demo: its spec, and its data, made on first use."""

from __future__ import annotations

from pathlib import Path

from cloister.demo.registry import civic_registry
from cloister.errors import StorageError
from cloister.tasks.runtime.code_version import PACKAGE
from cloister.tasks.runtime.files import replace_file
from cloister.tasks.runtime.home import Home, private_folder

_SPEC = PACKAGE.parent / "data" / "specs" / "demo.yaml"


def demo_spec() -> Path:
    """The spec of the demo data.

    Raises:
        StorageError: it is not part of this installation.
    """
    if not _SPEC.exists():
        raise StorageError(f"{_SPEC} does not exist; run the demo from a checkout of the project")
    return _SPEC


def demo_data(home: Home) -> Path:
    """The demo data as CSV, in a home.

    Raises:
        StorageError: it cannot be written.
    """
    path = private_folder(home.folder / "demo") / "demo.csv"
    if not path.exists():
        replace_file(path, lambda part: civic_registry().to_csv(part, index=False))
    return path
