"""What can be known to be wrong before the ledger is asked and any data is opened."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cloister.constraints import require_consistent
from cloister.errors import StorageError, VerificationError
from cloister.privacy.ledger import State
from cloister.privacy.manifest import read_manifest
from cloister.schema.loading import load_spec
from cloister.schema.spec import Spec
from models.protocol import Budget
from tasks.books import existing_ledger
from tasks.home import Home
from tasks.orders import Order, World, declared_world, public_rows, require_public, require_small_delta

CELL_BYTES = 24
SPARE_BYTES = 32 << 20


def require_usable(order: Order, world: World, home: Home) -> None:
    """Check everything about an order that needs no data.

    Raises:
        ConstraintError: the hard constraints contradict each other, or cannot hold for so many rows.
        StorageError: the data cannot be read, an output cannot be written, or the disk has no room.
    """
    require_consistent(world.task.constraints, world.task.domain, max(order.rows, world.task.rows))
    require_readable(order, world.spec)
    if order.out:
        require_new(order.out, _unfinished(order.out, home))
    for folder in _written(order, home):
        require_room(folder, order.rows * len(world.task.domain.names) * CELL_BYTES + SPARE_BYTES)


def require_new(out: Path, release: str | None = None) -> None:
    """Check that nothing would be overwritten at ``out``, other than an unfinished copy of the same release.

    Raises:
        StorageError: something else lies there.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    manifest = out / "manifest.json"
    if release and manifest.is_file() and release.encode() in manifest.read_bytes():
        return
    raise StorageError(f"{out} exists and is not empty; give another folder with --out, or move it away")


def _unfinished(out: Path, home: Home) -> str | None:
    """The release that a folder holds, if it was killed before it became a candidate."""
    try:
        held = read_manifest(out).release
    except (StorageError, VerificationError):
        return None
    ledger = existing_ledger(home)
    releases = ledger.releases() if ledger else []
    return next((release.id for release in releases if release.id == held and release.state is State.SPENT), None)


def require_readable(order: Order, spec: Spec) -> None:
    """Check that the data is a file that can be read.

    Raises:
        StorageError: it is not.
    """
    named = order.data or (Path(spec.source.path) if spec.source.path else None)
    if named is None:
        return
    if not named.exists():
        raise StorageError(f"the data {named} does not exist; correct source.path in the spec or give --data")
    if named.is_dir() or not os.access(named, os.R_OK):
        raise StorageError(f"the data {named} cannot be read; check that it is a file and its permissions")


def _written(order: Order, home: Home) -> Iterator[Path]:
    yield home.folder
    if order.out:
        yield order.out


def require_room(folder: Path, needed: int) -> None:
    """Check that files of so many bytes can be made in or below the nearest folder that exists.

    Raises:
        StorageError: they cannot.
    """
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        free = shutil.disk_usage(existing).free
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{folder} cannot be written ({reason}); give another folder or correct its rights"
        ) from None
    if free < needed:
        raise StorageError(
            f"{folder}: the disk has {free >> 20} MiB free and the release needs about {needed >> 20}; make room"
        )


def checked_spec(path: Path) -> dict[str, object]:
    """What a spec declares, if a release would take it.

    Raises:
        SpecError, ConstraintError, PlanError: a release would not.
    """
    spec = load_spec(path)
    require_public(path, spec)
    world = declared_world(spec, public_rows(spec))
    require_consistent(world.task.constraints, world.task.domain, world.task.rows)
    require_small_delta(Budget(spec.release.epsilon, spec.release.delta), spec)
    return {
        "name": spec.name,
        "attributes": len(spec.attributes),
        "hard constraints": len(world.task.hard),
        "soft constraints": len(world.task.soft),
        "privacy unit": world.unit,
        "relation": spec.privacy.relation,
        "declared rows": world.task.rows,
    }
