"""Files that appear whole: each is written first to a part beside it, named by its process."""

from __future__ import annotations

import glob
import os
from pathlib import Path


def part_beside(path: Path) -> Path:
    """Where a file is written before it is moved to its place.

    Parts that killed processes left of it are removed.
    """
    for part in path.parent.glob(f".*.{glob.escape(path.name)}"):
        owner = part.name.split(".")[1]
        if owner.isdecimal() and not runs(int(owner)):
            part.unlink(missing_ok=True)
    return path.with_name(f".{os.getpid()}.{path.name}")


def runs(process: int) -> bool:
    """Whether a process of this machine still runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
