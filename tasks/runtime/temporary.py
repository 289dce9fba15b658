"""Temporary files of this process and its libraries: in the home, removed after the work."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from cloister.files import is_running
from cloister.tasks.runtime.home import Home, private_folder


@contextmanager
def temporary_files(home: Home) -> Iterator[None]:
    """Have temporary files written to a folder of this process in the home.

    Those of killed processes are removed.

    Raises:
        StorageError: the folder cannot be made.
    """
    folder = private_folder(home.folder / "tmp")
    for left in folder.iterdir():
        owner = left.name.partition(".")[0]
        if owner.isdecimal() and not is_running(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    own = private_folder(folder / f"{os.getpid()}.{secrets.token_hex(8)}")
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(own)
    try:
        yield
    finally:
        tempfile.tempdir = before
        os.environ.pop("TMPDIR")
        os.environ.update({"TMPDIR": variable} if variable else {})
        shutil.rmtree(own, ignore_errors=True)
