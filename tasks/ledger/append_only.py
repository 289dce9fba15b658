"""Append-only stores elsewhere: a file, a branch of a Git remote, a bucket of objects.

Lines of text are added to each, and none is ever replaced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from cloister.errors import InputError, StorageError

_PATIENCE = 30
"""Seconds that a store may take to answer: a move waits for it, though it is already committed."""

_BRANCH = "refs/heads/anchors"

_MOST_TRIES = 5
"""Pushes of a line, between which others have pushed theirs."""

_PEOPLE = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
"""Who makes a commit, in the variables of Git."""

_SCHEMES = ("git+ssh://", "git+https://", "git+file://")
"""How Git reaches a remote; ``git://`` and ``http://`` do not authenticate the server."""

_THERE = 412
"""The status of an object that is not written, since one of its name is there."""

_READERS = 8
"""Objects that are read at once."""


class AnchorStore(Protocol):
    """A store of lines that are only added; ``name`` is as in the setting."""

    @property
    def name(self) -> str:
        """Where lines are added."""

    def send(self, lines: Sequence[str]) -> None:
        """Add lines. Errors: ``StorageError`` if one cannot be added; others may be there then."""

    def lines(self) -> list[str]:
        """All lines that are there. Errors: ``StorageError`` if they cannot be read."""


@dataclass(frozen=True)
class LineFile:
    """A file elsewhere; a line is on the disk when ``send`` returns."""

    name: str

    def send(self, lines: Sequence[str]) -> None:
        text = "".join(f"{line}\n" for line in lines).encode("ascii")
        with _reaching(), Path(self.name).open("ab+") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            cut_off = file.read() not in (b"", b"\n")  # by a full disk
            file.write(b"\n" + text if cut_off else text)
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[str]:
        path = Path(self.name)
        with _reaching():
            return path.read_text("utf-8", "replace").splitlines() if path.exists() else []


@dataclass(frozen=True)
class CommitBranch:
    """The branch ``anchors`` of a Git remote: a line is the message of a commit without files.

    They are pushed by ``git`` without force.
    """

    name: str

    @property
    def _url(self) -> str:
        return self.name.removeprefix("git+")

    def send(self, lines: Sequence[str]) -> None:
        with _reaching(), _repository() as folder:
            for _ in range(_MOST_TRIES):
                last = self._fetched(folder, "--depth=1")
                tree = _output_of(folder, "mktree")
                for line in lines:
                    parent = ("-p", last) if last else ()
                    last = _output_of(folder, "commit-tree", *parent, "-m", line, tree)
                pushed = _git(folder, "push", "--quiet", "--", self._url, f"{last}:{_BRANCH}")
                if pushed.returncode == 0:
                    return
        raise _refused(pushed)

    def lines(self) -> list[str]:
        with _reaching(), _repository() as folder:
            last = self._fetched(folder)
            output = (
                _output_of(folder, "log", "--reverse", "-z", "--format=%B", last) if last else ""
            )
            return [message.strip() for message in output.split("\0") if message.strip()]

    def _fetched(self, folder: str, *depth: str) -> str | None:
        """The newest commit, fetched into a repository; None if there is none."""
        listed = _output_of(folder, "ls-remote", "--", self._url, _BRANCH)
        if listed:
            _output_of(folder, "fetch", "--quiet", *depth, "--", self._url, _BRANCH)
        return listed.split()[0] if listed else None


@contextmanager
def _repository() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        _output_of(folder, "init", "--quiet", "--bare")
        yield folder


def _output_of(folder: str, *words: str) -> str:
    """What ``git`` says. Errors: ``StorageError`` if it fails."""
    done = _git(folder, *words)
    if done.returncode:
        raise _refused(done)
    return done.stdout.strip()


def _git(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``git`` in a repository, without prompts and without another repository's settings."""
    allowed = ("GIT_SSH", "GIT_CONFIG")
    inherited = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(allowed)
    }
    people = dict.fromkeys(_PEOPLE, "cloister")
    quiet = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    return subprocess.run(  # noqa: S603
        ["git", *words],  # noqa: S607 - that of who runs this
        cwd=folder,
        input="",
        env={"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"} | inherited | people | quiet,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_PATIENCE,
        check=False,
    )


def _refused(done: subprocess.CompletedProcess[str]) -> StorageError:
    lines = done.stderr.strip().splitlines() or ["it did not say why"]
    return StorageError(f"git {done.args[1]}: {lines[-1]}")


@dataclass(frozen=True)
class ObjectBucket:
    """Objects named by the SHA-256 of their line; the retention of their bucket keeps them.

    Who sends them, and where the service is, boto3 reads from its own settings (``AWS_...``).
    """

    name: str

    @property
    def _bucket(self) -> str:
        return urlsplit(self.name).netloc

    @property
    def _prefix(self) -> str:
        prefix = urlsplit(self.name).path.strip("/")
        return f"{prefix}/" if prefix else ""

    def send(self, lines: Sequence[str]) -> None:
        with _s3() as client:
            for line in lines:
                self._put(client, line.encode("ascii"))

    def _put(self, client: Any, line: bytes) -> None:
        key = f"{self._prefix}{sha256(line).hexdigest()}.json"
        try:
            client.put_object(Bucket=self._bucket, Key=key, Body=line, IfNoneMatch="*")
        except client.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != _THERE:
                raise

    def lines(self) -> list[str]:
        with _s3() as client, ThreadPoolExecutor(_READERS) as pool:
            pages = client.get_paginator("list_objects_v2")
            listed = pages.paginate(Bucket=self._bucket, Prefix=self._prefix)
            keys = [item["Key"] for page in listed for item in page.get("Contents", [])]
            return list(pool.map(lambda key: self._get(client, key), keys))

    def _get(self, client: Any, key: str) -> str:
        body = client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return str(body, "utf-8", "replace")


@contextmanager
def _s3() -> Iterator[Any]:
    """A client, whose errors become ``StorageError``."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    patience = Config(
        connect_timeout=_PATIENCE, read_timeout=_PATIENCE, retries={"total_max_attempts": 2}
    )
    try:
        yield boto3.client("s3", config=patience)
    except (BotoCoreError, ClientError, ValueError) as error:
        raise StorageError(str(error)) from None


@contextmanager
def _reaching() -> Iterator[None]:
    """Turn system errors of a store into ``StorageError``."""
    try:
        yield
    except subprocess.TimeoutExpired:
        raise StorageError(f"no answer within {_PATIENCE} seconds") from None
    except OSError as error:
        raise StorageError(os.strerror(error.errno or 0)) from None


def anchor_store_of(name: str) -> AnchorStore:
    """The anchor store of a name, which is not contacted.

    Raises:
        InputError: it cannot be one, or needs what is not installed.
    """
    if "://" in name and urlsplit(name).password is not None:
        raise InputError(
            "CLOISTER_ANCHORS names a URL with a password, which messages would show; leave it to "
            "the settings of git. Nothing was charged."
        )
    if name.startswith("s3://") and urlsplit(name).netloc:
        if find_spec("boto3") is None:
            raise InputError(
                f"CLOISTER_ANCHORS names {name}, which needs a library that is not installed; run "
                "pip install 'cloister[s3]'. Nothing was charged."
            )
        return ObjectBucket(name)
    if name.startswith(_SCHEMES):
        if shutil.which("git") is None:
            raise InputError(
                f"CLOISTER_ANCHORS names {name}, and there is no command git here; install it. "
                "Nothing was charged."
            )
        return CommitBranch(name)
    if "://" in name or not Path(name).is_absolute() or Path(name).is_dir():
        raise InputError(
            f"CLOISTER_ANCHORS names {name}, which cannot hold anchors; give /PATH/FILE, "
            "git+ssh://, git+https:// or git+file:// with a remote, or s3://BUCKET/PREFIX. Nothing "
            "was charged."
        )
    return LineFile(name)
