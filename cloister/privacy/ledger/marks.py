"""Places in a journal, by which a ledger recognises older copies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A place in a journal: how many answers lie before it, and the digest of all bytes up to it.

    ``nonce`` is drawn by the run that begins there, so that two runs never share a digest; a seal
    has none.
    """

    position: int
    digest: str
    nonce: str = ""


@dataclass(frozen=True)
class JournalState:
    """A journal as a run opened it: where the run begins, and the digests of all prefixes."""

    mark: Mark
    sealed: bool
    digests: frozenset[str]
