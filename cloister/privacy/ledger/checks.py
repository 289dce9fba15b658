"""Checks of the ledger: before it writes an entry, and of all entries, in it or exported.

Before an entry: a sound chain, the right release. Of all: the chain is whole, all moves allowed,
all charges within budget.

Each refusal of data that depends on rows is an exact answer, at no charge. So the ledger counts
them, and gives back the reservations of the first few in a window alone: from the number that the
rules of the account set, a reservation is forfeited, and the account takes no other until an
officer allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from cloister import errors
from cloister.privacy.ledger import records
from cloister.privacy.ledger.accounts import Account
from cloister.privacy.ledger.books import REFUSAL, LedgerState
from cloister.privacy.ledger.budgets import Budgets
from cloister.privacy.ledger.composition import REFUSALS, Compose, basic_composition
from cloister.privacy.ledger.entries import Anchor, Entry, Finding, check_chain, read_chain
from cloister.privacy.ledger.leases import Held
from cloister.privacy.ledger.permissions import require_permitted
from cloister.privacy.ledger.store import Row


def require_sound(rows: list[Row], first: int = 1) -> list[Entry]:
    """The entries of rows from a ``first`` number on.

    Errors: ``VerificationError`` if the chain is broken.
    """
    entries, findings = read_chain(entry_lines(rows), first)
    findings = findings or check_copies(rows, entries)
    if findings:
        raise errors.VerificationError(
            f"The ledger is not as it was written ({findings[0]}): run cloister verify."
        )
    return entries


def require_guarded(changed: Sequence[str]) -> None:
    """Check that the guards of the database are those that a ledger makes."""
    if changed:
        raise errors.VerificationError(
            f"The ledger's database was changed by other means ({changed[0]}), and nothing is "
            "added to it: run cloister verify, and restore it from a backup or an export. Nothing "
            "was charged."
        )


def entry_lines(rows: list[Row]) -> list[bytes]:
    """The text of each entry."""
    return [row.line.encode("utf-8", "surrogatepass") for row in rows]


def check_copies(rows: list[Row], entries: list[Entry]) -> list[Finding]:
    """The rows whose columns differ from the entry in their text."""
    return [
        Finding(entry.seq, "was altered: its columns and its text do not agree")
        for row, entry in zip(rows, entries, strict=True)
        if row != Row.of(entry)
    ]


def find_release(books: LedgerState, release: str) -> records.Release:
    """The release of this name. Errors: ``InputError`` if there is none."""
    if release not in books.releases:
        raise errors.InputError(f"There is no release '{release}': see cloister ledger list.")
    return books.releases[release]


def require_account(books: LedgerState, account: Account) -> None:
    """Check that an account can be opened, or is as it was opened, and may have these places.

    A new account of a dataset with releases of an earlier version takes their unit and relation.
    """
    opened = books.accounts.get(account.name)
    strangers = [holder for holder in books.accounts.values() if holder.name != account.name]
    for location in account.places:
        holder = next((holder for holder in strangers if holder.overlaps(location)), None)
        if holder and not (opened and location in opened.places):
            raise errors.InputError(
                f"{location} is data of account '{holder.name}', at least in part, and one data "
                f"set has one budget: write account: {holder.name} in the spec, instead of "
                f"'{account.name}'. Nothing was charged."
            )
    earlier = [opened] if opened else _earlier_accounts(books, account.name)
    for existing in earlier:
        if existing.partition != account.partition:
            divided, requested = (one.partition or "none" for one in (existing, account))
            raise errors.InputError(
                f"account '{account.name}' has blocks by {divided}, for life, and this asks for "
                f"{requested}: a row would be in two blocks, or in all. Use the account's in the "
                "spec. Nothing was charged."
            )
        if (existing.unit, existing.relation) != (account.unit, account.relation):
            raise errors.InputError(
                f"account '{account.name}' protects unit '{existing.unit}' under "
                f"'{existing.relation}', for life, and this asks for unit "
                f"'{account.unit}' under '{account.relation}', "
                "whose epsilons do not add up with those: use the account's in the spec, or for "
                "rows on an account of persons privacy.group. Nothing was charged."
            )
    if opened:
        _require_reading(opened, account)


def _require_reading(opened: Account, account: Account) -> None:
    """Check that an account is read as it was: else a row may count as another unit or block."""
    differing = [
        f"{name} {pinned}, and here {name} {requested}"
        for name, (pinned, requested) in opened.contradictions(account.reading).items()
    ]
    if differing:
        raise errors.InputError(
            f"account '{opened.name}' reads, for life, {'; '.join(differing)}: the same rows would "
            "count as other units or blocks, under the same budget. Read them as before in the "
            "spec, or have an officer move the account with cloister dataset reread. Nothing was "
            "charged."
        )


def _earlier_accounts(books: LedgerState, name: str) -> list[Account]:
    """The units and relations of the charged releases of a dataset without an account."""
    charged = [release.request for release in books.releases.values() if release.state.charged]
    pairs = {(request.unit, request.relation) for request in charged if request.dataset == name}
    return [Account(name, unit, relation) for unit, relation in sorted(pairs)]


def require_unit(books: LedgerState, dataset: str, unit: str) -> None:
    """Check that a budget is granted to the privacy unit of its account."""
    account = books.accounts.get(dataset)
    if account and account.unit != unit:
        raise errors.InputError(
            f"account '{dataset}' protects unit '{account.unit}', for life: grant its budget with "
            f"--unit {account.unit}."
        )


def require_whole_journal(
    release: records.Release, lease: Held, journal: records.JournalState
) -> None:
    """Check that a run may begin: the release is spent, and its journal holds all earlier runs."""
    if release.state is not records.State.SPENT:
        raise errors.InputError(
            f"Release {release.id} is {release.state.words}: nothing more is drawn for it."
        )
    known = [*release.runs[-1:], *filter(None, (lease.last, release.seal))]
    if not {mark.digest for mark in known} <= journal.digests:
        raise stale_journal(release.id)


def stale_journal(release: str) -> errors.JournalMismatch:
    """The error of a journal that is an older copy."""
    return errors.JournalMismatch(
        f"The journal of release {release} lacks answers that the ledger knows were drawn: it is a "
        "copy made before them, or an older one was restored. Run the command where the whole "
        f"journal is; if it is lost, cloister review withdraw {release}, and start a new release "
        "at a new charge."
    )


def is_replanned(release: records.Release, request: records.ReservationRequest) -> bool:
    """Whether a release that queried nothing was reserved by another version with another plan."""
    other_code = release.request.code_version != request.code_version
    return (
        release.state is records.State.RESERVED
        and other_code
        and not release.request.same_run(request)
    )


def require_same_run(release: records.Release, request: records.ReservationRequest) -> None:
    """Check that an unfinished release was reserved by the same request."""
    if release.request.same_run(request):
        return
    if release.request.code_version != request.code_version:
        raise other_version(release, "plans it otherwise")
    raise errors.InputError(
        f"Release {release.id} is unfinished and has the same spend id, but was requested with "
        "other values: compute the spend id from everything that makes the run."
    )


def other_version(release: records.Release, difference: str) -> errors.InputError:
    """The error of a release that only the version that began it can finish.

    ``difference`` is what this version does with the same request.
    """
    return errors.InputError(
        f"Release {release.id} was begun by version {release.request.code_version}, and this "
        f"version {difference}, so it cannot use the answers that were drawn. Their charge stands: "
        "install that version and run the same command to finish the release, or cloister review "
        f"withdraw {release.id}, and the same command starts a new one at a new charge. Nothing "
        "more was charged."
    )


def require_same_evidence(release: records.Release, evidence: Mapping[str, str]) -> None:
    """Check that a release began with the same journal and data."""
    differing = sorted(key for key in evidence if release.evidence.get(key) != evidence[key])
    if differing:
        raise errors.JournalMismatch(
            f"Release {release.id} was begun with another {' and '.join(differing)}: its answers "
            "cannot be drawn again without a new charge; withdraw it and start a new release."
        )


def verify_chain(
    entries: Sequence[Entry], anchors: Iterable[Anchor] = (), compose: Compose = basic_composition
) -> list[Finding]:
    """Problems of ``entries``, by entry number; none for an intact ledger.

    ``anchors`` are entries that certificates vouch for: without one, a ledger whose end was cut off
    looks like a shorter one. ``compose`` must be the composition of the ledger. Budgets are audited
    on a whole chain only.
    """
    return verify_read(entries, check_chain(entries), anchors, compose)


def verify_read(
    entries: Sequence[Entry],
    broken: list[Finding],
    anchors: Iterable[Anchor] = (),
    compose: Compose = basic_composition,
) -> list[Finding]:
    """``verify_chain`` on entries of which is known what breaks their chain."""
    return [*broken, *_check_anchors(entries, anchors)] or audit(entries, compose)


def verify_export(
    path: Path | str, anchors: Iterable[Anchor] = (), compose: Compose = basic_composition
) -> list[Finding]:
    """``verify_chain`` on an exported file, to the byte.

    Errors: ``StorageError`` if it cannot be read.
    """
    return verify_read(*read_chain(export_lines(path)), anchors, compose)


def export_lines(path: Path | str) -> list[bytes]:
    """The lines of an export, without their ends.

    What follows the last end is a line too, if there is anything. Errors: ``StorageError`` if it
    cannot be read.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise errors.StorageError(f"{path} cannot be read: correct the path.") from error
    return lines[:-1] if lines[-1] == b"" else lines


def audit(entries: Iterable[Entry], compose: Compose) -> list[Finding]:
    """Entries that no ledger would write: illegal moves, charges over budget, decreasing times."""
    books, findings, before = LedgerState(), [], ""
    for entry in entries:
        for check in (
            partial(_require_time, before=before),
            partial(_require_room, books, compose),
            partial(_require_counted, books),
            partial(_require_permission, books),
            books.post,
        ):
            try:
                check(entry)
            except errors.CloisterError as error:
                findings.append(Finding(entry.seq, str(error)))
        before = entry.time
    return findings


def _require_time(entry: Entry, before: str) -> None:
    try:
        datetime.strptime(entry.time, "%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: DTZ007
    except (TypeError, ValueError):
        raise errors.VerificationError("holds no time as the ledger writes them") from None
    if entry.time < before:
        raise errors.VerificationError("is earlier than the entry before it")


def _require_room(books: LedgerState, compose: Compose, entry: Entry) -> None:
    request = None
    if entry.kind == records.State.RESERVED:
        with suppress(KeyError, TypeError, errors.InputError):  # found when it is posted
            request = records.ReservationRequest.from_body(entry.body)
    if request:
        Budgets(books, request.dataset, request.unit, entry.time, compose).admit(request)


def _require_counted(books: LedgerState, entry: Entry) -> None:
    """Check that refusals are counted, as all are after the first that is."""
    if books.counted_refusals or REFUSAL in entry.body:
        require_counted(books, entry)


def _require_permission(books: LedgerState, entry: Entry) -> None:
    """Check that who wrote an entry might; one that cannot be read fails when posted."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        require_permitted(books, entry)


def _check_anchors(entries: Sequence[Entry], anchors: Iterable[Anchor]) -> list[Finding]:
    hashes = {entry.seq: entry.hash for entry in entries}
    return [
        Finding(anchor.seq, "is missing: a certificate vouches for it")
        if anchor.seq not in hashes
        else Finding(anchor.seq, "is not the entry that a certificate vouches for")
        for anchor in anchors
        if hashes.get(anchor.seq) != anchor.hash
    ]


def refusal_of(
    books: LedgerState, release: records.Release, time: str
) -> tuple[int, records.State]:
    """Which refusal of its window that of a reserved release is, and what becomes of its charge.

    Of the longest of the windows of the budgets that hold at a time.
    """
    owner = release.request.dataset, release.request.unit
    periods = (budget.period for budget in Budgets(books, *owner, time).binding())
    windows = [
        sum(part.number for key, part in books.sums_of(*owner, window) if key.standing in REFUSALS)
        for window in (period.window(release.reserved_at) for period in periods)
    ]
    number = 1 + max(windows, default=0)
    forfeited = number >= books.house.rules_of(release.request.dataset).refusals
    return number, records.State.FORFEITED if forfeited else records.State.REFUNDED


def require_counted(books: LedgerState, entry: Entry) -> None:
    """Check that an entry on refused data counts it, and gives back no more than the rules allow.

    Errors: ``InputError`` if it does not.
    """
    kind, reason = entry.kind, entry.body.get("reason")
    given_back = kind == records.State.REFUNDED and reason == records.REFUSED
    release = books.releases.get(str(entry.body.get("release")))
    if release is None or not (given_back or kind == records.State.FORFEITED):
        return
    number, state = refusal_of(books, release, entry.time)
    if (entry.body.get(REFUSAL), reason, kind) != (number, records.REFUSED, state):
        raise errors.InputError(
            f"Release {release.id} is refusal {number} of data in its window, by which it is "
            f"{state.words}, and this says otherwise. Nothing was changed."
        )
