"""The last step: the manifest, the copy at ``--out``, and the candidate in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect.runtime import flow_run

from cloister.models.storage import model_digest
from cloister.privacy.certificate.certificate import YAML_NAME
from cloister.privacy.certificate.manifest import MANIFEST_NAME, Lineage, Manifest, write_manifest
from cloister.tasks.ledger.transitions import is_candidate, record_candidate
from cloister.tasks.release.certify import Certified
from cloister.tasks.release.load import load_release
from cloister.tasks.release.retained import write_kept
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.code_version import code_version
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.places import copy_whole
from cloister.tasks.runtime.references import Reference, digest_of
from cloister.tasks.runtime.step import recording_step


@dataclass(frozen=True)
class Recorded:
    """Where a release is recorded: the id of MLflow's run, and the folder of DVC's pointers."""

    run: str
    pointers: Path


@recording_step("publish", "publish {done.charge.release}")
def publish_release(
    request: ResolvedRequest, done: Certified, folder: Reference, recorded: Recorded, home: Home
) -> Path:
    """The folder of the public files: that of ``--out``, else the one in the home.

    The copy appears whole or not at all, and so do the tables in a database, if one was asked for.
    The release is a candidate once they are there; repeated after that, nothing is written again.

    Raises:
        StorageError: the folder holds something else, or cannot be written.
    """
    release, public = done.charge.release, folder.path
    if is_candidate(release, home):
        return request.out_path or public
    (public / MANIFEST_NAME).unlink(
        missing_ok=True
    )  # of an attempt that failed: the digest of the folder is without
    folder.open()
    lineage = Lineage(
        done.anchor,
        code_version(),
        request.digest,
        recorded.run,
        str(flow_run.id or ""),
        model=model_digest(done.model.open()),
        kept=write_kept(home, release),
    )
    manifest = write_manifest(public, release, lineage)
    if request.out_path:
        copy_whole(public, request.out_path, release)
    if request.database:
        load_release(request, request.database, release, public)
    record_candidate(release, request.by, _evidence(manifest, public, recorded.run), home)
    return request.out_path or public


def _evidence(manifest: Manifest, public: Path, tracking_run: str) -> dict[str, str]:
    digests = {"manifest": manifest.digest, "certificate": digest_of(public / YAML_NAME)}
    return digests | ({"tracking_run": tracking_run} if tracking_run else {})
