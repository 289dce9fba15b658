"""What a journal says of itself, read for verification without changing it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloister.errors import StorageError, VerificationError
from cloister.privacy.door.journal_format import (
    FIRST,
    FIRST_SEAL,
    JOURNAL_NAME,
    LAST,
    MAGIC,
    Frame,
    TornFrame,
    parse_frame,
)


@dataclass(frozen=True)
class JournalFacts:
    """Whose journal it is, and whether its run was finished."""

    id: str
    fingerprint: Mapping[str, Any]
    sealed: bool


def read_journal(folder: Path) -> JournalFacts:
    """The facts of the journal in a folder, after its chain of seals was recomputed as a whole.

    Raises:
        StorageError: it cannot be read.
        VerificationError: a byte of it was changed, or its first frame is missing.
    """
    path = folder / JOURNAL_NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({os.strerror(error.errno or 0)})") from None
    frames = read_frames(content)
    if not frames or frames[0].kind != FIRST:
        raise VerificationError("was altered: it does not begin as a journal does")
    meta = frames[0].meta
    return JournalFacts(str(meta.get("id")), meta.get("fingerprint", {}), frames[-1].kind == LAST)


def read_frames(content: bytes) -> list[Frame]:
    """All frames of a journal, without a last one that was never completed.

    Raises:
        VerificationError: a byte of it was changed.
    """
    if not content.startswith(MAGIC):
        raise VerificationError("was altered: it is not a journal")
    frames: list[Frame] = []
    at, seal = len(MAGIC), FIRST_SEAL
    while at < len(content):
        try:
            frame = parse_frame(lambda start, stop: content[start:stop], at, seal)
        except TornFrame:
            break
        if frame is None:
            raise VerificationError(f"was altered near byte {at}")
        frames.append(frame)
        at, seal = frame.end, frame.seal
    if frames and frames[-1].kind == LAST and at < len(content):
        raise VerificationError("was altered: more follows its end")
    return frames
