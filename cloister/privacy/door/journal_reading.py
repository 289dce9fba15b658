"""What a journal says of itself, read without changing it: for verification."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloister.errors import StorageError, VerificationError
from cloister.privacy.door.journal import _FIRST, _LAST, _MAGIC, FILE_NAME, _Frame, _parse, _Torn


@dataclass(frozen=True)
class JournalFacts:
    """Whose journal it is, and whether its run was finished."""

    id: str
    fingerprint: Mapping[str, Any]
    sealed: bool


def read_journal(folder: Path) -> JournalFacts:
    """The facts of the journal in a folder, after its chain of seals was recomputed from the first byte to the last.

    Raises:
        StorageError: it cannot be read.
        VerificationError: a byte of it is not as it was written, or its first frame is missing.
    """
    path = folder / FILE_NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({os.strerror(error.errno or 0)})") from None
    frames = _frames(content)
    if not frames or frames[0].kind != _FIRST:
        raise VerificationError("was altered: it does not begin as a journal does")
    meta = frames[0].meta
    return JournalFacts(str(meta.get("id")), meta.get("fingerprint", {}), frames[-1].kind == _LAST)


def _frames(content: bytes) -> list[_Frame]:
    """All frames; a last one that was never completed is left out, as it was never seen."""
    if not content.startswith(_MAGIC):
        raise VerificationError("was altered: it is not a journal")
    frames: list[_Frame] = []
    at, seal = len(_MAGIC), hashlib.sha256(_MAGIC).digest()
    while at < len(content):
        try:
            frame = _parse(lambda start, stop: content[start:stop], at, seal)
        except _Torn:
            break
        if frame is None:
            raise VerificationError(f"was altered near byte {at}")
        frames.append(frame)
        at, seal = frame.end, frame.seal
    if frames and frames[-1].kind == _LAST and at < len(content):
        raise VerificationError("was altered: more follows its end")
    return frames
