"""The code that made a release, as far as the installation shows it."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cloister.privacy.certificate.schema import Software
from cloister.version import __version__

_ROOT = Path(__file__).parents[3]
_LOCK = "constraints.txt"
_LIBRARIES = ("torch", "opendp", "numpy", "cryptography", "pandas")


@cache
def software(sources: str) -> Software:
    """The running code; ``sources`` is a digest of its sources.

    Commit and lock file are those of a checkout, and None for an installed package. A commit whose
    files were changed ends in ``+changes``.
    """
    return Software(
        cloister=__version__,
        sources=sources,
        commit=_commit(_ROOT) if (_ROOT / ".git").exists() else None,
        lock=_digest(_ROOT / _LOCK),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        libraries={name: found for name in _LIBRARIES if (found := _version(name))},
    )


def _commit(root: Path) -> str | None:
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+changes" if commit and changed else commit


def _git(root: Path, *words: str) -> str | None:
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
