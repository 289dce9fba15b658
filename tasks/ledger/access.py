"""The ledger's part in a release: its request, its charge, its state, and what a budget admits.

Reading never creates a ledger. Imports that only a release needs are inside functions: commands
that read the ledger load neither numpy nor pandas.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cloister.errors import CloisterError, InputError, PlanError, StorageError, VerificationError
from cloister.privacy.events import Bounded, Relation, event_from_json
from cloister.privacy.ledger import (
    Account,
    Anchor,
    BlockScheme,
    BudgetGrant,
    Ledger,
    Opening,
    Owner,
    Release,
    ReservationRequest,
    State,
)
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.budgets import BudgetStatus
from cloister.privacy.ledger.checkpoints import CheckpointFile
from cloister.privacy.ledger.checks import verify_export
from cloister.privacy.ledger.composition import events_of
from cloister.privacy.ledger.governance import refuse, restore
from cloister.privacy.ledger.lookups import anchor_at
from cloister.privacy.ledger.transactions import Transaction
from cloister.privacy.signing import PublicKey
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version
from cloister.tasks.ledger.anchors import anchor_stores, held_anchors, send_anchor
from cloister.tasks.ledger.keys import house_key, house_signer

if TYPE_CHECKING:
    from cloister.models.task import AnyPlan
    from cloister.privacy.certificate.certificate import RecordGuarantees
    from cloister.privacy.door.journal import Journal
    from cloister.schema.spec import Spec
    from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest

COMPOSITION = "the sum of the epsilons of all releases (basic composition)"

FILTERED = (
    "a privacy filter, which keeps all releases of the budget period together within the budget, "
    "however each was chosen"
)


_PATIENCE = 60.0
"""Seconds for which an operation waits for another of the ledger."""


def open_ledger(home: Home, timeout: float = _PATIENCE) -> Ledger:
    """The ledger of a home; it accepts no entry unless it holds what this home wrote last.

    Its newest entry goes to the anchor stores. ``timeout`` is how long an operation waits for
    another, in seconds.

    Raises:
        InputError: an anchor store cannot be used.
        StorageError: it cannot be reached, read or made.
    """
    anchor_stores(home)
    home.prepare()
    ledger = Ledger.open(home.ledger, timeout=timeout)
    return replace(
        ledger,
        written=partial(_note, home),
        before=partial(_require_kept, home),
        signer=partial(house_signer, home),
        checkpoints=_checkpoints(home),
    )


def _note(home: Home, last: Anchor) -> None:
    home.write_end(last)
    send_anchor(home, last)


def _checkpoints(home: Home) -> CheckpointFile:
    """The checkpoint of a home; if it cannot sign, the public half of its key verifies it."""

    def key() -> PublicKey | None:
        return house_key(home) if home.read_only or home.house_key else house_signer(home).key

    return CheckpointFile(home.checkpoint, key)


def _require_kept(home: Home, transaction: Transaction) -> None:
    """Check that a ledger holds what this home was charged, before anything is added to it.

    Raises:
        StorageError: it is empty, and this home has releases.
        VerificationError: it lacks the last entry that this home wrote.
    """
    if not transaction.last and (traces := home.traces()):
        raise StorageError(
            f"{traces[0]} was charged to a ledger, and {transaction.store.name} is empty: with a "
            "new one, what was spent would be forgotten. Restore it from a backup, or from an "
            "export with cloister ledger restore FILE. Nothing was charged."
        )
    last = _noted_end(home)
    if last and not transaction.holds(last):
        raise VerificationError(
            f"{transaction.store.name} does not hold entry {last.seq} as this home wrote it: its "
            "end was cut off, or another ledger was put in its place. Restore it from a backup or "
            "an export; see cloister verify. Nothing was charged."
        )


def _noted_end(home: Home) -> Anchor | None:
    """The last entry that this home wrote, by its own note; None if it has none.

    Raises:
        VerificationError: the note was altered.
    """
    try:
        return anchor_of(home.end.read_text(encoding="ascii").removesuffix("\n"))
    except FileNotFoundError:
        return None
    except (InputError, UnicodeDecodeError):
        raise VerificationError(
            f"{home.end} was altered; see cloister verify. Nothing was charged."
        ) from None


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


def spent_anchor(ledger: Ledger, release: str) -> Anchor:
    """The entry that made the charge of a release final."""
    spent = next(moved for moved in ledger.release(release).steps if moved.state is State.SPENT)
    return anchor_at(ledger, spent.seq)


def commit_charge(
    release: str, request: ResolvedRequest, journal: Journal, data: tuple[str, str], home: Home
) -> Anchor:
    """Make the charge of a release final; this process leases the release.

    ``data`` is its digest and its sealed fingerprint. The lease ends when the journal is closed.

    The run is written into the journal before the ledger: if the process is killed in between, the
    journal holds one run more than the ledger knows, and is still accepted.

    Raises:
        JournalMismatch: the release was begun with another journal or other data, or the journal is
            not whole.
        StorageError: another process runs the release.
    """
    ledger = open_ledger(home)
    ledger.spend(release, request.by, journal.id, *data)
    journal.guard(
        ledger.begin_run(release, request.by, journal.begin_run(code_version()), Owner.current())
    )
    return spent_anchor(ledger, release)


def seal(release: str, request: ResolvedRequest, journal: Journal, home: Home) -> None:
    """Seal the journal of a release, in its file and in the ledger: no more queries."""
    open_ledger(home).seal(release, request.by, journal.seal())


def give_back(release: str, request: ResolvedRequest, home: Home) -> Release:
    """Give back a reservation whose data was refused; a charge that is final stays.

    Too many refusals in a window, and the reservation is forfeited.
    """
    return refuse(open_ledger(home), release, request.by)


def record_candidate(release: str, by: str, evidence: dict[str, str], home: Home) -> None:
    """Record that a release is ready for review, with digests of what is to be reviewed."""
    open_ledger(home).advance(release, State.CANDIDATE, by, "the release flow ended", evidence)


def is_candidate(release: str, home: Home) -> bool:
    """Whether a release is ready for review."""
    return open_ledger(home).release(release).state is State.CANDIDATE


def spend_id(request: ResolvedRequest, context: PublicContext) -> str:
    """SHA-256 of everything that decides a fit but the code: spec, data, method and budget."""
    from cloister.models.task import AS_USUAL

    sources = [part.source for part in context.spec.parts.values()]
    named = [source.path or f"{source.url} {source.table}" for source in sources]
    parts = {
        "spec": request.digest,
        "data": str(request.data or " ".join(named)),
        "method": request.method,
        "epsilon": str(request.budget.epsilon),
        "delta": str(request.budget.delta),
    }
    if request.block:
        parts["block"] = request.block
    if request.row_sampling != AS_USUAL:
        parts["sampling"] = repr(request.row_sampling)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def release_request(
    request: ResolvedRequest, context: PublicContext, plan: AnyPlan
) -> ReservationRequest:
    """The request as the ledger records it; for a group, only its price is recorded.

    Raises:
        PlanError: the plan makes records from seeds, whose guarantees are of rows.
    """
    from cloister.models.registry import create
    from cloister.privacy.mechanisms.randomness import noise_source

    price, event = context.price(request.budget), plan.event
    if context.spec.privacy.group:
        relation = context.spec.privacy.relation
        if create(request.method).own_guarantees(event, price.delta, relation).records:
            raise PlanError(
                "records made from seeds have guarantees of their own, which no group privacy is "
                "known of; leave privacy.group out, or name another method. Nothing was charged."
            )
        event = Bounded(price.epsilon, price.delta)
    return ReservationRequest(
        dataset=context.dataset,
        unit=context.unit,
        relation=Relation(context.spec.privacy.relation).value,
        epsilon=price.epsilon,
        delta=price.delta,
        events=event.to_json(),
        method=request.method,
        spec_digest=request.digest,
        code_version=code_version(),
        spend_id=spend_id(request, context),
        stain="" if noise_source().secure else "NOT PRIVATE: seeded noise",
        blocks=context.spec.blocks,
    )


def opening_of(request: ResolvedRequest, context: PublicContext, home: Home) -> Opening:
    """The account of a request, and the budget that its spec declares for a first release.

    Raises:
        StorageError: a variable that the URL of a database names is not set.
    """
    declared = context.spec.privacy.budget
    return Opening(
        account_of(context.spec, request.data, home),
        BudgetGrant.of(
            context.dataset, context.unit, declared.epsilon, declared.delta, declared.per
        ),
        f"first release; declared in the spec with digest {request.digest[:16]}",
    )


def account_of(spec: Spec, data: Path | None, home: Home) -> Account:
    """The account of a spec whose data lies where it says, or at ``data``.

    A frame that a program passed is in the home for a while: it has no place of its own.

    Raises:
        StorageError: a variable that the URL of a database names is not set.
    """
    from cloister.schema.sources.reading import PLACE, places_of, reading_of

    frames = home.folder.resolve() / "frames"
    places = places_of(spec, data)
    passing = {location for location in places if Path(location).is_relative_to(frames)}
    fixed = tuple(location for location in places if location not in passing)
    reading = reading_of(spec, data)
    for location in passing:
        reading.pop(PLACE + location, None)
    privacy = spec.privacy
    whose = spec.account_name, privacy.unit_name, Relation(privacy.relation).value
    return Account(*whose, fixed, _partition(spec), reading)


def _partition(spec: Spec) -> BlockScheme | None:
    """How growing data is divided, and how the cells that decide it are read."""
    if spec.privacy.block is None:
        return None
    block = spec.privacy.block
    column = spec.attributes[block.column]
    written = getattr(column, "format", None)
    return BlockScheme(
        block.column, f"{column.type}, {written}" if written else column.type, block.per
    )


def existing_ledger(home: Home, timeout: float = _PATIENCE) -> Ledger | None:
    """The ledger of a home, if there is one; ``timeout`` as that of `open_ledger`."""
    if not home.may_hold_ledger:
        return None
    if home.read_only:
        return replace(Ledger.open(home.ledger, timeout=timeout), checkpoints=_checkpoints(home))
    return open_ledger(home, timeout)


def uncounted_releases(status: BudgetStatus) -> int:
    """How many charged releases of a dataset are not differentially private.

    No epsilon bounds what these reveal.
    """
    from cloister.privacy.accounting.composition import is_counted

    events = events_of(status.queried.requests())
    return sum(times for event, times in events.items() if not is_counted(event))


def export_ledger(home: Home, path: Path) -> Anchor:
    """Write all entries of the ledger to a file; the anchor of the last.

    Raises:
        InputError: there is none.
        StorageError: the file cannot be written.
    """
    ledger = existing_ledger(home)
    anchor = ledger.export(path) if ledger and ledger.anchor() else None
    if anchor is None:
        raise InputError(f"there is no entry in a ledger at {home.ledger}; set CLOISTER_HOME")
    return anchor


def restore_ledger(home: Home, export: Path) -> Anchor:
    """Write the entries of an export into a new ledger, in place of one that is gone.

    Raises:
        StorageError: there is a ledger, or the export cannot be read.
        VerificationError: the export is not a ledger as it was written, or lacks entries that this
            home wrote, that one of its certificates names, or that a place of anchors holds.
    """
    anchors = [*filter(None, [_noted_end(home)]), *vouched(home), *held_anchors(home)]
    if findings := verify_export(export, anchors):
        raise VerificationError(
            f"{export}, {findings[0]}; restore a later export, or a backup of the ledger itself"
        )
    home.prepare()
    restored = restore(home.ledger, export)
    home.write_end(restored)
    return restored


def vouched(home: Home) -> Iterator[Anchor]:
    """The entries that the certificates of a home name."""
    from cloister.privacy.certificate.certificate import read_certificate

    for folder in sorted((home.folder / "releases").glob("*/public")):
        with suppress(CloisterError):
            named = read_certificate(folder).ledger
            yield Anchor(named.seq, named.hash)


def releases(home: Home, dataset: str | None) -> list[Release]:
    """The releases of a dataset, or all, oldest first."""
    ledger = existing_ledger(home)
    return ledger.releases(dataset) if ledger else []


def release_of(home: Home, release: str) -> Release:
    """One release.

    Raises:
        InputError: there is none of this name.
    """
    ledger = existing_ledger(home)
    if ledger is None:
        raise InputError(
            f"there is no release '{release}': there is no ledger at {home.ledger} yet"
        )
    return ledger.release(release)


def guarantees_of(release: Release) -> RecordGuarantees | None:
    """The guarantees of the records of a release that are made from seeds.

    None without any, and of a method that is not installed.
    """
    from cloister.models.registry import create

    request = release.request
    try:
        method = create(request.method)
    except InputError:
        return None
    event = event_from_json(request.events)
    return method.own_guarantees(event, request.delta, request.relation).records


def pending_release(request: ResolvedRequest, context: PublicContext, home: Home) -> Release | None:
    """The release of an earlier run of the request, if it is unfinished or was not reported."""
    ledger = existing_ledger(home)
    return ledger.books().pending(spend_id(request, context)) if ledger else None


def all_places(books: LedgerState, account: Account, stored: Sequence[str] = ()) -> Account:
    """An account with all names of its places, also those that another account has of its files.

    ``stored`` are those that databases gave.
    """
    from cloister.schema.sources.stored_files import same_places

    places = tuple(dict.fromkeys((*account.places, *stored)))
    strangers = (each for each in books.accounts.values() if each.name != account.name)
    apart = [
        registered
        for stranger in strangers
        for registered in stranger.places
        if not any(map(replace(stranger, places=(registered,)).overlaps, places))
    ]
    return replace(account, places=(*places, *same_places(places, apart)))


def with_all_places(
    opening: Opening, books: LedgerState, request: ResolvedRequest, context: PublicContext
) -> Opening:
    """What opens an account, with all names of its places, for which databases are asked.

    A release whose charge is final is only resumed, and needs none.

    Raises:
        StorageError: a database cannot be reached, or has no such table.
    """
    from cloister.schema.sources.reading import stored_facts, stored_places

    pending = books.pending(spend_id(request, context))
    if pending and pending.state is not State.RESERVED:
        return opening
    stored = stored_places(context.spec, request.data)
    account = all_places(books, opening.account, [*stored])
    account = replace(account, reading={**account.reading, **stored_facts(stored)})
    return replace(opening, account=bound_account(books, account))


def bound_account(books: LedgerState, account: Account) -> Account:
    """An account that also says what it reads by the names that the ledger's account has for it."""
    from cloister.schema.sources.reading import bound_reading

    pinned = books.accounts.get(account.name, account)
    return replace(account, reading=bound_reading(account, pinned))
