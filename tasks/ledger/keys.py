"""The house's key: it signs what the house says, unattended; its public half lies beside it."""

from __future__ import annotations

from collections.abc import Iterator

from cloister.errors import CloisterError
from cloister.privacy.signing import FileSigner, PublicKey
from cloister.tasks.home.home import Home, private_folder


def house_signer(home: Home) -> FileSigner:
    """The house's key, made on first use, with its public half beside it.

    Raises:
        StorageError: it cannot be made or read, or others can read it.
    """
    folder = private_folder(home.folder / "signing")
    signer = FileSigner.open(folder / "house.pem")
    public = folder / "house.pub"
    if not public.exists():
        public.write_text(signer.key.pem, encoding="ascii")
    return signer


def house_key(home: Home) -> PublicKey | None:
    """The public half of the house's key, by the private one if it is lost; None if none was made.

    Raises:
        StorageError: it cannot be read.
    """
    private, public = (home.folder / "signing" / f"house.{end}" for end in ("pem", "pub"))
    if private.exists() and not public.exists():
        return FileSigner.open(private, make=False).key
    return PublicKey.read(public) if public.exists() else None


def signing_findings(home: Home) -> Iterator[str]:
    """What is wrong with the house's key: its two halves are one key.

    The private half is its owner's alone, so that it cannot be checked in a copy.
    """
    folder = home.folder / "signing"
    if not folder.exists() or home.is_copy:
        return
    private, public = folder / "house.pem", folder / "house.pub"
    try:
        halves = FileSigner.open(private, make=False).key, PublicKey.read(public)
    except CloisterError as error:
        yield f"{private}, {public}: {error}"
        return
    if halves[0] != halves[1]:
        yield f"{private} and {public} are of two keys: one was altered or replaced"
