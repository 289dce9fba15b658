"""The house's key, which signs what the house says, and the chain of its trust statements.

The key is made on first use, in the home's folder ``signing``, or lies where CLOISTER_HOUSE_KEY
says; its public half lies in the folder. ``trust.jsonl`` holds the trust statements: whose keys
count, one version for each change, made from the ledger's entries.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from getpass import getpass

from cloister.errors import CloisterError
from cloister.files import write_whole
from cloister.privacy import signing
from cloister.privacy.certificate.manifest import TRUST_NAME
from cloister.privacy.ledger.house import House
from cloister.tasks.home.files import exclusive
from cloister.tasks.home.home import Home, private_folder

NEXT_NAME = "next.pem"
"""The house's next key, while it is being changed."""

PIN, PASSPHRASE = "CLOISTER_PIN", "CLOISTER_PASSPHRASE"
"""The variables that hold the PIN of a token, and the passphrase of a key in a file."""


def house_signer(home: Home) -> signing.Signer:
    """The house's key, made on first use, with its public half beside it.

    Raises:
        StorageError: it cannot be made or read, or others can read it.
    """
    folder = private_folder(home.folder / "signing")
    in_home = not home.house_key
    signer = (
        signing.FileSigner.open(folder / "house.pem") if in_home else open_person(home.house_key)
    )
    public = folder / "house.pub"
    if not public.exists():
        public.write_text(signer.key.pem, encoding="ascii")
    return signer


def open_person(location: str) -> signing.Signer:
    """The key of a person, or of a house, in a file or a token.

    A variable holds its passphrase or PIN; a terminal is asked for a passphrase that none holds.

    Raises:
        InputError: the location is neither.
        StorageError: the key cannot be used.
    """

    def passphrase() -> str:
        asks = PASSPHRASE not in os.environ and sys.stdin and sys.stdin.isatty()
        return getpass(f"Passphrase of {location}: ") if asks else os.environ.get(PASSPHRASE, "")

    return signing.open_signer(location, os.environ.get(PIN, ""), passphrase)


def house_key(home: Home) -> signing.PublicKey | None:
    """The public half of the house's key, from the private one if it is lost; None without a key.

    Raises:
        StorageError: it cannot be read.
    """
    private, public = (home.folder / "signing" / f"house.{end}" for end in ("pem", "pub"))
    if private.exists() and not public.exists():
        return signing.FileSigner.open(private, make=False).key
    return signing.PublicKey.read(public) if public.exists() else None


def house_trust(home: Home) -> signing.Trust | None:
    """The house's key, those before it, and whose keys count; None if it has none.

    Raises:
        StorageError: they cannot be read.
        VerificationError: the newest trust statement is not of the house's key.
    """
    key = house_key(home)
    return newest_trust(home) or (signing.Trust(key) if key else None)


def house_keys(home: Home) -> tuple[signing.PublicKey, ...]:
    """The house's key and those before it; none if none was made. Errors: as of `house_trust`."""
    house = house_trust(home)
    return house.role(signing.HOUSE).keys if house else ()


def newest_trust(home: Home) -> signing.Trust | None:
    """The newest trust statement of a home; None if it has none.

    Raises:
        StorageError: it cannot be read.
        VerificationError: it is not of the house's key.
    """
    folder, key = home.folder / "signing", house_key(home)
    path, following = folder / TRUST_NAME, folder / NEXT_NAME
    if key is None or not path.exists():
        return None
    newest = signing.read_trust(path)[-1:]
    if following.exists():  # a change of the key was killed: the statement may be of either
        after = signing.FileSigner.open(following, make=False).key
        key = after if signing.signers(newest[0], [after]) else key
    return signing.follow_trust(newest, key)[-1]


def update_trust(
    home: Home, house: House, signer: signing.Signer, *more_signers: signing.Signer
) -> signing.Trust | None:
    """Write the next trust statement if the ledger's people or keys are not those of the last.

    The newest; None while the house has neither keys of people nor a second key.

    Raises:
        StorageError: it cannot be written or signed.
    """
    path = home.folder / "signing" / TRUST_NAME
    with exclusive(path.with_suffix(".lock")):
        last = newest_trust(home) or signing.Trust(signer.key)
        now = _trust_of(last, house)
        if more_signers:
            now = now.with_house(more_signers[0].key)
        if now == last:
            return last if path.exists() else None
        first = [] if path.exists() else [signing.sign_trust(last, signer)]
        newest = replace(now, version=last.version + 1)
        after = [*first, signing.sign_trust(newest, signer, *more_signers)]
        lines = [json.dumps(json.loads(envelope.text)) + "\n" for envelope in after]
        text = (path.read_text(encoding="ascii") if path.exists() else "") + "".join(lines)
        write_whole(path, lambda part: part.write_text(text, encoding="ascii"))
        return newest


def _trust_of(last: signing.Trust, house: House) -> signing.Trust:
    """What the ledger says of keys, in the form of a trust statement after the last one."""
    people = {
        name: tuple(
            tuple(map(signing.PublicKey.from_hex, person.keys))
            for person in house.people.values()
            if name in person.roles and person.keys
        )
        for name in signing.ROLES
    }
    roles = tuple(signing.Role(name, keys) for name, keys in people.items() if keys)
    known = {(revocation.key, revocation.seq) for revocation in last.revoked}
    revoked = [
        signing.Revocation(key.id, anchor.seq, anchor.hash)
        for key, anchor in house.revoked.items()
        if (key.id, anchor.seq) not in known
    ]
    return replace(last, roles=roles, revoked=(*last.revoked, *revoked))


def signing_findings(home: Home) -> Iterator[str]:
    """What is wrong with the house's key: its two halves are one key.

    The private half is its owner's alone, so that it cannot be checked in a copy.
    """
    folder = home.folder / "signing"
    if not folder.exists() or home.is_copy or home.house_key:
        return
    private, public = folder / "house.pem", folder / "house.pub"
    try:
        halves = signing.FileSigner.open(private, make=False).key, signing.PublicKey.read(public)
    except CloisterError as error:
        yield f"{private}, {public}: {error}"
        return
    if halves[0] != halves[1]:
        yield f"{private} and {public} are of two keys: one was altered or replaced"
