"""Whether ledger, home and releases still are what was recorded.

Recomputed from the files alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cloister.errors import InputError, StorageError, VerificationError
from cloister.privacy.certificate.certificate import read_certificate
from cloister.privacy.certificate.manifest import read_manifest
from cloister.privacy.ledger import Anchor, Ledger, Release, State, verify_export
from cloister.tasks.ledger.home_findings import home_findings, mode_findings
from cloister.tasks.ledger.queries import existing_ledger
from cloister.tasks.ledger.release_findings import folder_findings, release_findings
from cloister.tasks.release.retained import FILE_NAME
from cloister.tasks.runtime.home import Home

_KEPT_STATES = (
    State.SPENT,
    State.CANDIDATE,
    State.APPROVED,
    State.PUBLISHED,
    State.REJECTED,
    State.WITHDRAWN,
)


def verify_records(
    home: Home, what: str | None, anchors: Sequence[Anchor] = ()
) -> tuple[list[str], list[str]]:
    """What was checked, and all problems of it: the ledger and the whole home, or one release.

    ``what`` may be a release, its folder, or an exported ledger. The ledger must hold the
    ``anchors``, and the entries that the home and its certificates name: so a cut-off end is found.

    Raises:
        InputError: ``what`` is none of these.
    """
    if what is not None and Path(what).is_file():
        return [what], [f"{what}, {finding}" for finding in verify_export(what, anchors)]
    modes = mode_findings(home)
    ledger = existing_ledger(home)
    anchors = [*anchors, *_vouched(home)]
    if what is not None and Path(what).is_dir():
        return _verified_folder(home, ledger, Path(what), anchors)
    if ledger is None:
        raise InputError(
            f"there is no ledger at {home.ledger}; give the folder of a release, or set "
            "CLOISTER_HOME"
        )
    broken = [f"ledger, {finding}" for finding in ledger.verify(anchors)]
    ended = list(_end_findings(home, ledger))
    if what is not None:
        return _verified_release(home, ledger, what, [*ended, *broken])
    findings = [*modes, *ended, *broken, *home_findings(home)]
    return _verified_home(home, ledger if not broken else None, findings)


def release_problems(home: Home, release: str) -> list[str]:
    """Everything that is wrong with one release in this home."""
    ledger = existing_ledger(home)
    if ledger is None:
        raise InputError(f"there is no ledger at {home.ledger}; set CLOISTER_HOME")
    return list(release_findings(home, ledger, ledger.release(release)))


def anchor_of(text: str) -> Anchor:
    """The entry that NUMBER:HASH names.

    Raises:
        InputError: it is not of that form.
    """
    number, _, digest = text.partition(":")
    if not (number.isascii() and number.isdecimal()) or not digest:
        raise InputError(
            f"'{text}' is no anchor; give NUMBER:HASH, as cloister ledger export prints it"
        )
    return Anchor(int(number), digest)


def _verified_release(
    home: Home, ledger: Ledger, what: str, broken: list[str]
) -> tuple[list[str], list[str]]:
    if broken:
        return ["the ledger"], broken
    return ["the ledger", f"release {what}"], list(
        release_findings(home, ledger, ledger.release(what))
    )


def _verified_home(
    home: Home, ledger: Ledger | None, findings: list[str]
) -> tuple[list[str], list[str]]:
    """All releases of a home, against the ledger if that is sound.

    Else its folders for themselves.
    """
    if ledger is None:
        folders = sorted((home.folder / "releases").glob("*/public"))
        found = [finding for folder in folders for finding in folder_findings(folder, None, None)]
        return ["the ledger", *map(str, folders)], findings + found
    present = _present(home)  # before the ledger is read: a release may begin meanwhile
    known = ledger.releases()
    chosen = [
        release for release in known if release.state in _KEPT_STATES and _is_here(release, home)
    ]
    found = [finding for release in chosen for finding in release_findings(home, ledger, release)]
    ids = {release.id for release in known}
    unknown = [
        f"{path}: the ledger holds no such release; entries were cut off or replaced"
        for path in present
        if path.name not in ids
    ]
    return [
        "the ledger",
        str(home.folder),
        *(f"release {release.id}" for release in chosen),
    ], findings + unknown + found


def _is_here(release: Release, home: Home) -> bool:
    """Whether a release belongs to this home: several machines may share a ledger elsewhere."""
    own = "://" not in home.ledger and Path(home.ledger).absolute().is_relative_to(home.folder)
    return own or home.release(release.id).exists() or home.journal(release.id).exists()


def _present(home: Home) -> list[Path]:
    """The folders of releases in a home."""
    places = ("releases", "journals")
    return [path for place in places for path in sorted((home.folder / place).glob("*"))]


def _end_findings(home: Home, ledger: Ledger) -> Iterator[str]:
    """What is wrong with a home's own note of the last entry, or with the ledger by it."""
    try:
        last = anchor_of(home.end.read_text(encoding="ascii").removesuffix("\n"))
        if last not in [entry.anchor for entry in ledger.entries()]:
            yield (
                f"{home.end}: the ledger does not hold the entry it names: its end was cut off, or "
                "one was altered"
            )
    except (InputError, UnicodeDecodeError):
        yield f"{home.end}: was altered"
    except VerificationError:
        return  # reported by the check of the ledger
    except OSError:
        if [*(home.folder / "releases").glob(f"*/{FILE_NAME}")]:
            yield f"{home.end}: is missing"


def _vouched(home: Home) -> Iterator[Anchor]:
    """The entries that the certificates of a home name."""
    for folder in sorted((home.folder / "releases").glob("*/public")):
        with suppress(StorageError, VerificationError):
            named = read_certificate(folder).ledger
            yield Anchor(named.seq, named.hash)


def _verified_folder(
    home: Home, ledger: Ledger | None, folder: Path, anchors: Sequence[Anchor]
) -> tuple[list[str], list[str]]:
    """A folder of public files; against the ledger too, if it is one of this home's releases."""
    named, held = _named_in(folder), _release_in(folder, ledger)
    own = held is not None or (named is not None and home.release(named).exists())
    findings = (
        [f"ledger, {finding}" for finding in ledger.verify(anchors)] if ledger and own else []
    )
    checked = [str(folder), *(["the ledger"] if own else [])]
    return checked, [*findings, *folder_findings(folder, None if findings else ledger, held)]


def _release_in(folder: Path, ledger: Ledger | None) -> Release | None:
    """The release of this ledger that a folder says it is."""
    named = _named_in(folder)
    try:
        return ledger.release(named) if ledger and named else None
    except (InputError, VerificationError):
        return None


def _named_in(folder: Path) -> str | None:
    try:
        return read_manifest(folder).release
    except (StorageError, VerificationError):
        return None
