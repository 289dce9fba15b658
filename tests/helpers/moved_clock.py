"""One clock for a test's processes, which the test sets; sleeps and locks take real seconds.

Of libfaketime, 0.9.10 fails ``time.sleep`` of Python 3.11 with EINVAL, so this is ``set_clock.c``.
"""

import shutil
import struct
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest


class MovedClock:
    """A clock that processes with its settings read as the time of day."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("cc is not installed")
        self._file, library = folder / "clock", folder / "set_clock.so"
        source = Path(__file__).with_name("set_clock.c")
        build = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(build, check=True)
        self.settings = {"LD_PRELOAD": str(library), "SET_CLOCK": str(self._file)}

    def set(self, now: datetime) -> None:
        """Let it be a time from now on."""
        moved = struct.pack("q", round(now.timestamp() - time.time()))
        if self._file.exists():
            with self._file.open("r+b") as file:
                file.write(moved)
        else:
            self._file.write_bytes(moved)
