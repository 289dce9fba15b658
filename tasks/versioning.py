"""Which data went in and came out, in DVC: pointers of one release each, and a remote that holds what may be shared.

The only module that speaks to DVC, through its command line, which is its documented interface. The repository lies in
the private home and knows no Git, so a release never touches the project's own repository, and two releases never want
to change the same file::

    releases/<release>/input.dvc         path, size and MD5 of the sensitive table: never copied, never sent anywhere
    releases/<release>/synthetic.dvc     the synthetic table, which is sent to the remote
    releases/<release>/certificate.dvc   the certificate, which is sent to the remote

The input's pointer is a partial import (``dvc import-url --no-download``): DVC can tell whether the table is still the
same, at the cost of reading it once. What is published goes to the remote directly (``dvc add --to-remote``), without a
copy in between. Since DVC's digests are MD5 and those of the input exact, pointers stay in the home; what is signed and
shared is the manifest's SHA-256.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cloister.errors import StorageError
from tasks.locks import exclusive

REMOTE = "storage"


@dataclass(frozen=True)
class Versions:
    """A DVC repository in a folder of its own; ``remote`` is a folder, or any URL that DVC takes."""

    folder: Path
    remote: str

    def track(self, release: str, source: Path | None, published: Mapping[str, Path]) -> Path:
        """Write the pointers of a release, anew if there are some, and send what is published to the remote.

        Args:
            source: the file of the sensitive table; None for one in a database, which has no pointer.
            published: files by the names of their pointers.

        Returns:
            the folder of the pointers.

        Raises:
            StorageError: DVC cannot do it; says what DVC said.
        """
        pointers = self.folder / "releases" / release
        self._make(pointers)
        with exclusive(self.folder / "lock"):
            self._prepare()
            for old in pointers.glob("*.dvc"):
                old.unlink()
            if source is not None:
                self._point_at(source, pointers)
            for name, path in published.items():
                self._send(path, pointers, name)
        return pointers

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be made ({os.strerror(error.errno or 0)}); make room") from None

    def _prepare(self) -> None:
        config = self.folder / ".dvc" / "config"
        if not config.is_file():
            self._dvc("init", "--no-scm", "--force")
            self._dvc("config", "core.analytics", "false")
        if f"url = {self.remote}\n" not in config.read_text(encoding="utf-8"):
            self._dvc("remote", "add", "--force", "--default", REMOTE, self.remote)

    def _point_at(self, source: Path, pointers: Path) -> None:
        out = pointers / f"input{source.suffix}"
        self._dvc("import-url", "--no-download", "--force", str(source.absolute()), str(out.relative_to(self.folder)))
        _rename(out, "input")

    def _send(self, path: Path, pointers: Path, name: str) -> None:
        out = pointers / f"{name}{path.suffix}"
        target = str(out.relative_to(self.folder))
        self._dvc("add", "--force", "--to-remote", "--remote", REMOTE, "--out", target, "--", str(path.absolute()))
        _rename(out, name)

    def _dvc(self, *words: str) -> None:
        command = [sys.executable, "-m", "dvc", "--quiet", "--wait-for-lock", *words]
        quiet = {"DVC_NO_ANALYTICS": "true", "DVC_SITE_CACHE_DIR": str(self.folder / "site")}
        done = subprocess.run(  # noqa: S603
            command, cwd=self.folder, env=os.environ | quiet, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise StorageError(
                f"DVC cannot {words[0]} in {self.folder} ({_reason(done.stderr)}); make room or check its remote"
            )


def _rename(out: Path, name: str) -> None:
    """A pointer may be called anything: the file that it stands for is named inside."""
    out.with_name(f"{out.name}.dvc").rename(out.with_name(f"{name}.dvc"))


def _reason(said: str) -> str:
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return errors[0] if errors else "it did not say why"
