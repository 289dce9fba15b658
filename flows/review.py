"""Review: a person moves a release from candidate to approved, published, rejected or withdrawn."""

from __future__ import annotations

from collections.abc import Collection

from cloister.errors import CloisterError, VerificationError
from cloister.privacy.certificate.manifest import APPROVAL_NAME, SIGNED
from cloister.privacy.ledger import Release, State
from cloister.privacy.ledger.governance import refuse
from cloister.tasks.data.session import was_refused
from cloister.tasks.home.files import exclusive, replace_file
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger, release_of
from cloister.tasks.ledger.fingerprints import require_seen
from cloister.tasks.ledger.keys import open_person
from cloister.tasks.release.approvals import sign_approval
from cloister.tasks.release.integrity import folder_findings
from cloister.tasks.release.publish import send_release
from cloister.tasks.release.retention import delete_due, end_deletions
from cloister.tasks.release.signing import sign_moves, statements_of
from cloister.tasks.release.verify import release_problems
from cloister.tasks.stores.mlflow_database import clear_errors
from cloister.tasks.stores.mlflow_registry import ModelRegistry


def move_release(
    home: Home,
    release: str,
    state: str,
    by: str,
    reason: str,
    key: str = "",
    same_data: Collection[str] = (),
) -> str:
    """Move a release in the ledger, then mirror it if it has a model; the state it has now.

    While more approvals are needed, that is the state it had. ``key`` is the location of the key
    with which a person signs the approval. An officer who approves names in ``same_data`` the other
    accounts that read the same rows.

    A release to be approved or published is verified first, including its records in MLflow and
    DVC, and its public files are sent to the DVC remote. Repeating a move that was killed completes
    it. A reservation that is withdrawn before its data was opened is given back; one whose data was
    refused counts as a refusal. What is no longer needed is deleted.

    Raises:
        InputError: there is no such release, or its state does not allow the move.
        NotPermitted: ``by`` may not, or has not named the accounts of the same data.
        VerificationError: the folder or the stores are not what was recorded; nothing is changed.
    """
    release_of(home, release)
    with exclusive(home.folder / "decision.lock"):
        return _moved(home, release, state, by, reason, key, same_data)


def _moved(
    home: Home,
    release: str,
    state: str,
    by: str,
    reason: str,
    key: str,
    same_data: Collection[str],
) -> str:
    """Move a release while nothing else is decided in the home."""
    entry = release_of(home, release)
    end_deletions(home, entry)
    to = State.REFUNDED if state == "withdrawn" and entry.state is State.RESERVED else State(state)
    if to is State.REFUNDED and was_refused(release, home):
        return refuse(open_ledger(home), release, by).state.value
    if to.shareable:
        _require_seen(home, entry, to, by, same_data)
        if entry.state.shareable and not entry.of_domain:
            send_release(home, release)  # which checks what is signed
            sign_moves(home, release, by)
        _require_sound(home, entry)
    if not (to.shareable and to is entry.state):
        now = _advanced(home, entry, to, by, reason, key)
        if now.state is not to:
            return now.state.value
    if to is not State.REFUNDED:
        sign_moves(home, release, by)
    if to is not State.REFUNDED and entry.state is not State.SPENT and not entry.of_domain:
        _mirror(home, entry)
        _send(home, release, to)
    _delete_due(home, release, to, by)
    return to.value


def _delete_due(home: Home, release: str, to: State, by: str) -> None:
    """Delete what is due of a release that was moved.

    Raises:
        CloisterError: the ledger has the move, and not all was deleted.
    """
    try:
        delete_due(home, by, release)
    except CloisterError as error:
        raise CloisterError(
            f"{release} is {to.words}, but what is no longer needed was not deleted: {error}"
        ) from None


def _advanced(home: Home, entry: Release, to: State, by: str, reason: str, key: str) -> Release:
    """The release after a move in the ledger; a refused approval leaves no signature behind."""
    if to is not State.APPROVED or not key:
        return open_ledger(home).advance(entry.id, to, by, reason)
    path = home.release(entry.id) / "public" / APPROVAL_NAME
    before = path.read_bytes() if path.exists() else None
    signed = sign_approval(path.parent, entry, open_person(key))
    try:
        return open_ledger(home).advance(entry.id, to, by, reason, signed)
    except CloisterError:
        if before is None:
            path.unlink()
        else:
            replace_file(path, lambda part: part.write_bytes(before))
        raise


def countersign_all(home: Home, by: str) -> list[str]:
    """Sign the moves of all releases in a home by the house's present key; what could not be."""
    problems = []
    for release in open_ledger(home).releases():
        if release.state in SIGNED and (home.release(release.id) / "public").is_dir():
            try:
                countersign_release(home, release.id, by)
            except CloisterError as error:
                problems.append(f"release {release.id} keeps the signature it has: {error}")
    return problems


def countersign_release(home: Home, release: str, by: str) -> list[State]:
    """Sign the moves of a release that the present key has not signed; mirror them; their states.

    Raises:
        InputError: there is no such release.
        VerificationError: the folder is not what was recorded.
    """
    entry, ledger = release_of(home, release), open_ledger(home)
    for finding in folder_findings(home.release(release) / "public", ledger, entry):
        raise VerificationError(f"{finding}; nothing was signed: see cloister verify {release}")
    signed = sign_moves(home, release, by)
    if entry.state in SIGNED and "tracking_run" in entry.evidence:
        _mirror(home, entry)
    return signed


def _require_seen(
    home: Home, entry: Release, to: State, by: str, same_data: Collection[str]
) -> None:
    """Check that an officer who approves a candidate knows who else has its data; once is enough.

    Raises:
        NotPermitted: an account that read the same rows is not named.
    """
    if to is State.APPROVED and entry.state is State.CANDIDATE:
        require_seen(home, entry, by, same_data)


def _require_sound(home: Home, entry: Release) -> None:
    findings = release_problems(home, entry.id)
    if findings:
        raise VerificationError(
            f"{findings[0]}; release {entry.id} must not be approved: see cloister verify "
            f"{entry.id}"
        )
    if not entry.of_domain:
        ModelRegistry.of(home).find(entry.id)


def _mirror(home: Home, entry: Release) -> None:
    """Copy the states of the ledger to the registry, with statements beside the model, if it stays.

    Raises:
        CloisterError: the ledger has the move, the registry has not.
    """
    known = open_ledger(home).releases(entry.request.dataset)
    states = {release.id: release.state for release in known if release.state in SIGNED}
    gone = any("models" in deletion.kinds for deletion in entry.deletions)
    statements = [] if gone else statements_of(home, entry.id)
    try:
        with clear_errors():
            ModelRegistry.of(home).mirror(entry.id, states, statements)
    except CloisterError as error:
        raise CloisterError(
            f"{entry.id} is {states[entry.id].words} in the ledger, but not in the registry "
            f"(cloister review countersign {entry.id}): {error}"
        ) from None


def _send(home: Home, release: str, to: State) -> None:
    """Send the files of a release that was just approved.

    Raises:
        CloisterError: the ledger has the approval, the remote has not.
    """
    try:
        if to is State.APPROVED:
            send_release(home, release)
    except CloisterError as error:
        raise CloisterError(
            f"{release} is approved in the ledger, but not in the DVC remote (repeat the command): "
            f"{error}"
        ) from None
