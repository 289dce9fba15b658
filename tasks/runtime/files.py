"""Files of tasks, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloister.errors import StorageError
from cloister.files import write_whole


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` make a file beside ``path``, and move it there once it is on the disk.

    Folders that are missing are made. The file is readable by its owner alone.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, write)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{path} cannot be written ({reason}); make room or correct its rights"
        ) from None


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """Write JSON values to a file, whole or not at all; its path.

    Raises:
        StorageError: it cannot be written.
    """
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    replace_file(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path
