"""The bytes of a journal, and what they say of it, read for verification without changing it.

A magic line, then frames, appended and never changed:

::

    frame  = kind (1 byte) | length of meta (u32) | length of payload (u64)
             | CRC-32 of these | meta | payload | seal
    seal   = SHA-256 (seal of the frame before | all bytes of this frame before its seal)
    first  = "F", meta {id, fingerprint}
    then   = "R", meta {nonce, code}: a run begins
             "A", meta {request, dtype, shape, blinding}, payload: the noisy array
    last   = "S": the journal is sealed
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cloister.arrays import Array
from cloister.errors import StorageError, VerificationError

JOURNAL_NAME = "journal.bin"

MAGIC = b"cloister journal 1\n"
FIRST, RUN, ANSWER, LAST = b"F", b"R", b"A", b"S"

FIRST_SEAL = hashlib.sha256(MAGIC).digest()
"""In place of the seal of a frame before the first."""

SEAL_BYTES = hashlib.sha256().digest_size

_HEAD = struct.Struct("<cIQI")


class TornFrame(Exception):
    """The rest of the file is a frame whose write was cut short."""


@dataclass(frozen=True)
class Frame:
    """A frame, and where it and its payload lie in the file, in bytes."""

    kind: bytes
    meta: dict[str, Any]
    start: int
    end: int
    seal: bytes
    payload: slice


def encode_frame(kind: bytes, meta: dict[str, Any], payload: bytes, before: bytes) -> bytes:
    """The bytes of a frame that follows one with the seal ``before``."""
    text = canonical_json(meta)
    lengths = struct.pack("<cIQ", kind, len(text), len(payload))
    body = lengths + struct.pack("<I", zlib.crc32(lengths)) + text + payload
    return body + hashlib.sha256(before + body).digest()


def parse_frame(read: Callable[[int, int], bytes], start: int, before: bytes) -> Frame | None:
    """The frame at ``start``, None if it is damaged.

    ``read`` gives the bytes between two places, fewer where the file ends; ``before`` is the seal
    of the frame before. Errors: ``TornFrame`` if the frame was never completed.
    """
    head = read(start, start + _HEAD.size)
    if len(head) < _HEAD.size or not any(head):
        raise TornFrame
    kind, meta, payload, crc = _HEAD.unpack(head)
    if zlib.crc32(head[:-4]) != crc:
        return None
    end = start + _HEAD.size + meta + payload + SEAL_BYTES
    frame = read(start, end)
    body, seal = frame[:-SEAL_BYTES], frame[-SEAL_BYTES:]
    if len(frame) < end - start or not any(seal):
        raise TornFrame
    if hashlib.sha256(before + body).digest() != seal:
        return None
    split = _HEAD.size + meta
    fields = json.loads(body[_HEAD.size : split])
    return Frame(kind, fields, start, end, seal, slice(start + split, end - SEAL_BYTES))


def decode_array(frame: Frame, payload: bytes) -> Array:
    """The noisy array that an answer's payload holds."""
    dtype, shape = np.dtype(frame.meta["dtype"]), frame.meta["shape"]
    return np.frombuffer(bytearray(payload), dtype=dtype).reshape(shape)


def canonical_json(value: object) -> bytes:
    """A value as JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


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
    position, seal = len(MAGIC), FIRST_SEAL
    while position < len(content):
        try:
            frame = parse_frame(lambda start, stop: content[start:stop], position, seal)
        except TornFrame:
            break
        if frame is None:
            raise VerificationError(f"was altered near byte {position}")
        frames.append(frame)
        position, seal = frame.end, frame.seal
    if frames and frames[-1].kind == LAST and position < len(content):
        raise VerificationError("was altered: more follows its end")
    return frames
