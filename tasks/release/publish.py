"""The last steps: records in MLflow and DVC, the manifest, the copy, the outcome as delivered.

MLflow holds the run and the model, DVC the data, and the ledger whether the outcome was reported. A
run that is killed after the candidate entry leaves a finished, unreported release. The same request
then gets this release at no charge; once it is reported, the same request is a new release.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from prefect.runtime import flow_run

from cloister.errors import CloisterError, DiskFull, InputError, VerificationError
from cloister.figures import count_of
from cloister.models.storage import model_digest
from cloister.privacy.certificate import manifest as manifests
from cloister.privacy.certificate.certificate import YAML_NAME, Certificate, read_certificate
from cloister.privacy.certificate.registry import registry_entry
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger import Release, State
from cloister.privacy.ledger.house import SIGNATURE
from cloister.schema.sources import stored_files
from cloister.tasks.data.tables import load_release
from cloister.tasks.home.files import (
    causes_of,
    copy_whole,
    digest_of,
    has_no_room,
    is_of_full_disk,
    replace_file,
    write_json,
)
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version, reporter
from cloister.tasks.ledger.access import is_candidate, open_ledger, record_candidate, release_of
from cloister.tasks.ledger.keys import house_signer
from cloister.tasks.release.certify import Certified
from cloister.tasks.release.charge import ReservedRelease
from cloister.tasks.release.comparison import EvaluationRecord
from cloister.tasks.release.integrity import folder_findings, recorded_certificate
from cloister.tasks.release.kept_files import RUNS_NAME, write_kept
from cloister.tasks.release.signing import sign_candidate
from cloister.tasks.release.verify import release_problems
from cloister.tasks.requests.measurement import SPEC_NAME
from cloister.tasks.requests.plan import plan_json
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of
from cloister.tasks.stores.dvc_store import Versions, sent_files
from cloister.tasks.stores.mlflow_database import clear_errors
from cloister.tasks.stores.mlflow_registry import ModelRegistry, ReleasedModel, describe
from cloister.tasks.stores.mlflow_store import RunOrigin, Tracker
from cloister.tasks.stores.prefect_runs import recording_step, step


@dataclass(frozen=True)
class Recorded:
    """Where a release is recorded: the id of MLflow's run, and the folder of DVC's pointers."""

    run: str
    pointers: Path


@recording_step("record", "record {done.release}", "done", "measured")
def record_release(
    request: ResolvedRequest, done: Certified, measured: EvaluationRecord, home: Home
) -> Path:
    """Record a release in MLflow, DVC and the ledger, where it becomes a candidate; its folder.

    That of ``--out``, else the one in the home. Repeating it writes nothing.

    Raises:
        StorageError: a store cannot be used, or the folder holds something else.
    """
    if is_candidate(done.release, home):
        return request.out_path or done.folder.path
    for name in (manifests.MANIFEST_NAME, manifests.statement_name(State.CANDIDATE)):
        (done.folder.path / name).unlink(missing_ok=True)  # of an attempt: the digest is without
    with _full_disk_named(home.artifacts.parent, request, done.release, home):
        run = register_release(request, done, measured, home)
    reporter().advance("record", 1, 3)
    with _full_disk_named(home.versions, request, done.release, home):
        recorded = Recorded(run, version_release(request, done, home))
    reporter().advance("record", 2, 3)
    with _full_disk_named(done.folder.path, request, done.release, home):
        return publish_release(request, done, recorded, home)


@contextmanager
def _full_disk_named(
    folder: Path, request: ResolvedRequest, release: str, home: Home
) -> Iterator[None]:
    """Say of a full disk what could not be written, what was charged, and how to go on.

    ``folder`` is where the block writes, if the error names no file.

    Raises:
        DiskFull: no room is left.
    """
    try:
        yield
    except (CloisterError, OSError) as error:
        causes = [*causes_of(error)]
        if not (any(map(is_of_full_disk, causes)) or has_no_room(home.folder)):
            raise
        files = [cause.filename for cause in causes if isinstance(cause, OSError)]
        price = public_context_of(request).price(request.budget)
        raise DiskFull(
            f"{next(filter(None, files), folder)} cannot be written: the disk is full. Release "
            f"{release} was charged (epsilon {decimal(price.epsilon)}, delta "
            f"{decimal(price.delta)}); make room and run the same command, which finishes it at "
            "no further charge"
        ) from None


@clear_errors()
def register_release(
    request: ResolvedRequest, done: Certified, measured: EvaluationRecord, home: Home
) -> str:
    """Record a release and its model in the tracking store; the id of its run.

    Each stage is a child run. A release that was recorded before keeps its run.

    Raises:
        StorageError: the store cannot be reached, read or written.
    """
    public, release = done.folder.open(), done.release
    certificate = read_certificate(public)
    tracker = Tracker.open(home.tracking, home.artifacts)
    spent, dataset = done.fitted.spent, public_context_of(request).spec.name
    tags = {"spec.digest": request.digest, "ledger.entry": str(spent.anchor.seq)}
    entry = open_ledger(home).release(release)
    run = tracker.begin(release, dataset, request.method, tags, _origin(entry, certificate))
    tracker.log_input(run, dataset, spent.digest)
    tracker.log_params(run, _comparable(entry, certificate))
    tracker.log_plan(run, plan_json(done.fitted.plan))
    _record_spend(tracker, run, certificate)
    _record_measures(tracker, run, measured)
    tracker.log_certificate(run, public)
    released = ReleasedModel(done.fitted.model.open(), public, house_signer(home).key)
    ModelRegistry(tracker.client).register(run, released)
    tracker.finish(run, succeeded=True)
    logged = {"runs": tracker.runs(run), "models": tracker.models(run)}
    write_json(home.release(release) / RUNS_NAME, logged)
    return run


def _origin(entry: Release, certificate: Certificate) -> RunOrigin:
    """Where a release comes from: it began when its charge was reserved."""
    reserved, software = entry.steps[0], certificate.software
    purpose = f" For: {reserved.reason}" if reserved.reason else ""
    return RunOrigin(
        reserved.who,
        "cloister release",
        software.commit or "",
        datetime.fromisoformat(reserved.time),
        f"{describe(certificate)}{purpose}",
    )


def _comparable(entry: Release, certificate: Certificate) -> dict[str, object]:
    """What releases of a dataset are compared by, besides the figures of their plans."""
    request = entry.request
    facts = {name: getattr(request, name) for name in ("epsilon", "delta", "unit", "method")}
    return facts | {"rows": certificate.subject.rows}


def version_release(request: ResolvedRequest, done: Certified, home: Home) -> Path:
    """Point DVC at the data, the synthetic tables, their schema and the certificate.

    Nothing is sent: ``send_release`` does, once the release is approved. The folder of the
    pointers.
    """
    public = done.folder.open()
    published = sent_files([YAML_NAME, *read_certificate(public).artefacts], public)
    sources = _input_files(request, public_context_of(request))
    return Versions(home.versions, home.remote).track(done.release, sources, published)


def send_release(home: Home, release: str) -> None:
    """Send the public files of an approved release to the DVC remote.

    Doing it again sends what a killed process, or the remote, has lost.

    Raises:
        InputError: the release is not approved, or has no pointers.
        VerificationError: its files are not what was recorded; nothing is sent.
        StorageError: the remote cannot be written.
    """
    entry, public = release_of(home, release), home.release(release) / "public"
    if not entry.state.shareable:
        raise InputError(
            f"release {release} is {entry.state.words}; its files are sent once it is approved"
        )
    for finding in folder_findings(public, open_ledger(home), entry):
        raise VerificationError(f"{finding}; nothing was sent: see cloister verify {release}")
    published = sent_files([YAML_NAME, *read_certificate(public).artefacts], public)
    Versions(home.versions, home.remote).send(release, published)


def _record_spend(tracker: Tracker, run: str, certificate: Certificate) -> None:
    guarantee = certificate.guarantee
    tracker.log_spend(run, certificate.stages, guarantee.accounted.epsilon, guarantee.delta)
    for stage in certificate.stages:
        with tracker.stage(run, stage.name) as child:
            tracker.log_spend(child, [stage], stage.epsilon, guarantee.delta)


def _record_measures(tracker: Tracker, run: str, measured: EvaluationRecord) -> None:
    """On the run, where releases are compared, and on a child, as every stage has one."""
    if measured.evaluation.level == "none":
        return
    tracker.log_evaluation(run, measured.evaluation, measured.folder)
    with tracker.stage(run, "evaluation") as child:
        tracker.log_evaluation(child, measured.evaluation, measured.folder)


def _input_files(request: ResolvedRequest, context: PublicContext) -> list[Path]:
    """The files of the data on disks of this machine; none for tables in a database."""
    named = [request.data or table.spec.source.path for table in context.tables.values()]
    on_disk = [source for source in named if source and not stored_files.is_remote(source)]
    return [Path(file).absolute() for source in on_disk for file in stored_files.files_of(source)]


def publish_release(
    request: ResolvedRequest, done: Certified, recorded: Recorded, home: Home
) -> Path:
    """The folder of the public files: that of ``--out``, else the one in the home.

    The copy appears whole or not at all, and so do the tables in a database, if one was requested.
    The release becomes a candidate after that.

    Raises:
        StorageError: the folder holds something else, or cannot be written.
    """
    release, public = done.release, done.folder.open()
    lineage = manifests.Lineage(
        done.fitted.spent.anchor,
        code_version(),
        request.digest,
        recorded.run,
        str(flow_run.id or ""),
        model=model_digest(done.fitted.model.open()),
        kept=write_kept(home, release),
    )
    manifest = manifests.write_manifest(public, release, lineage)
    entry = open_ledger(home).release(release)
    signature = sign_candidate(public, entry, done.fitted.spent.anchor, request.by, home)
    if request.out_path:
        copy_whole(public, request.out_path, release)
    if request.database:
        load_release(request, request.database, release, public)
    record_candidate(
        release,
        request.by,
        _evidence(manifest, public, recorded.run) | {SIGNATURE: signature},
        home,
    )
    return request.out_path or public


def _evidence(manifest: manifests.Manifest, public: Path, tracking_run: str) -> dict[str, str]:
    digests = {"manifest": manifest.digest, "certificate": digest_of(public / YAML_NAME)}
    return digests | ({"tracking_run": tracking_run} if tracking_run else {})


_ended: ContextVar[list[str] | None] = ContextVar("ended", default=None)
"""The releases that ended inside the enclosing block of ``confirm_delivery``, if there is one."""


def keep_outcome(release: str, content: dict[str, Any], home: Home) -> None:
    """Store the outcome of a release before it is a candidate; internal, mode 0600."""
    write_json(_outcome_file(release, home), json.loads(json.dumps(content, default=str)))


@step("record", "find {charge.release}, finished before", "charge")
def publish_finished(
    request: ResolvedRequest, charge: ReservedRelease, home: Home
) -> dict[str, Any]:
    """The outcome of a release that an earlier run finished, with its files at ``out``.

    Raises:
        VerificationError: its files are not what was recorded.
        InputError: it was drawn with other options than those of this request.
    """
    content = finished_outcome(charge.release, home)
    public = home.release(charge.release) / "public"
    _require_same(request, content, public, charge.release)
    out = request.out_path
    if out and not (out.is_dir() and digest_of(out) == digest_of(public)):
        copy_whole(public, out, charge.release)
    if request.database:
        load_release(request, request.database, charge.release, public)
    context = public_context_of(request)
    status = open_ledger(home).budget(content["dataset"], context.unit, context.spec.blocks)
    internal = str(home.release(charge.release) / "internal")
    files = {"public": str(out or public), "internal": internal}
    files |= {"database": request.database} if request.database else {}
    return content | {"files": files, "earlier": True, "budget_left": decimal_below(status.left)}


@step("write", "write spec of {charge.release}, finished before", "charge")
def write_finished(request: ResolvedRequest, charge: ReservedRelease, home: Home) -> dict[str, Any]:
    """The outcome of a measurement that an earlier run finished, with its spec at ``out``.

    Raises:
        VerificationError: its files are not what was recorded.
    """
    content = finished_outcome(charge.release, home)
    spec = home.release(charge.release) / "public" / SPEC_NAME
    out = request.out_path or spec
    if not out.exists():
        replace_file(out, lambda part: part.write_bytes(spec.read_bytes()))
    return content | {"spec": str(out), "earlier": True}


def finished_outcome(release: str, home: Home) -> dict[str, Any]:
    """The outcome of a finished release, after a check of its files.

    Raises:
        VerificationError: a file was altered, or the outcome cannot be read.
    """
    remedy = (
        f"release {release} is finished and was charged; see cloister verify {release}, or reject "
        "it and start anew"
    )
    findings = release_problems(home, release)
    if findings:
        raise VerificationError(f"{findings[0]}; {remedy}")
    try:
        content: dict[str, Any] = json.loads(
            _outcome_file(release, home).read_text(encoding="utf-8")
        )
    except (OSError, ValueError):
        raise VerificationError(
            f"{_outcome_file(release, home)} cannot be read; {remedy}"
        ) from None
    return content


@contextmanager
def confirm_delivery(home: Home, by: str) -> Iterator[None]:
    """Record releases that end inside the block as delivered, once it has succeeded."""
    ended: list[str] = []
    token = _ended.set(ended)
    try:
        yield
    finally:
        _ended.reset(token)
    sys.stdout.flush()
    for release in ended:
        open_ledger(home).deliver(release, by)


def deliver(release: str, by: str, home: Home) -> None:
    """Record that a finished release was reported: the last act of a flow.

    Inside ``confirm_delivery`` this waits until the block has succeeded.
    """
    if (waiting := _ended.get()) is None:
        open_ledger(home).deliver(release, by)
    else:
        waiting.append(release)


def _require_same(
    request: ResolvedRequest, content: dict[str, Any], public: Path, release: str
) -> None:
    matches = {
        "--rows": request.rows == content["rows"],
        "--csv": not request.csv or any(public.glob("*.csv")),
    }
    differing = [option for option, same in matches.items() if not same]
    if differing:
        raise InputError(
            f"release {release} of the same request is finished, with "
            f"{count_of(content['rows'], 'row')}, and "
            f"was not reported; give {' and '.join(differing)} as before to get it at no charge, "
            f"or cloister review reject {release} first"
        )


def _outcome_file(release: str, home: Home) -> Path:
    return home.release(release) / "internal" / "outcome.json"


def write_registry_entry(home: Home, release: str, out: Path) -> None:
    """Write the entry of a release for the registry of deployments, from its certificate alone.

    Raises:
        InputError: the release is not approved or not private, the registry takes no file of this
            name, or asks for what the certificate does not state.
        VerificationError: the certificate is not the one that the ledger recorded.
    """
    entry = release_of(home, release)
    if entry.state not in (State.APPROVED, State.PUBLISHED):
        raise InputError(
            f"release {release} is {entry.state.words}; only an approved one has an entry in a "
            f"public registry: cloister review approve {release}"
        )
    if not re.fullmatch(r"[a-z0-9_]+\.yaml", out.name):
        raise InputError(
            f"{out.name}: the registry takes files of lowercase letters, digits and '_' that end "
            "in .yaml; give such a name"
        )
    text = registry_entry(recorded_certificate(home.release(release) / "public", entry)).to_yaml()
    replace_file(out, lambda part: part.write_text(text, encoding="utf-8"))
