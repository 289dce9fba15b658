"""Disks that are soon full: file systems in memory, which only root can mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A new folder that is a disk of its own; the test is skipped if none can be mounted."""
    folder.mkdir()
    if os.geteuid() != 0 or _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder):
        pytest.skip("a small disk can only be mounted by root")
    try:
        yield folder
    finally:  # lazily: MLflow keeps its database open
        subprocess.run(["umount", "--lazy", folder], check=True)


def _mount(*words: object) -> int:
    return subprocess.run(["mount", *map(str, words)], check=False, capture_output=True).returncode
