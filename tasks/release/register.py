"""The steps that record a release in MLflow (its run and model) and DVC (its data)."""

from __future__ import annotations

from pathlib import Path

from cloister.privacy.certificate.certificate import YAML_NAME, Certificate, read_certificate
from cloister.tasks.evaluation.compare import EvaluationRecord
from cloister.tasks.release.certify import Certified
from cloister.tasks.release.retained import RUNS_NAME
from cloister.tasks.requests.plan import plan_json
from cloister.tasks.requests.public_context import PublicContext, public_context_of
from cloister.tasks.requests.published import published_schema
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.files import write_json
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.references import Reference, digest_of
from cloister.tasks.runtime.step import recording_step
from cloister.tasks.stores.dvc_store import Versions, pointer_of
from cloister.tasks.stores.mlflow_registry import ModelRegistry
from cloister.tasks.stores.mlflow_store import Tracker, clear_errors


@recording_step("register", "register {done.charge.release}")
@clear_errors()
def register_release(
    request: ResolvedRequest,
    done: Certified,
    measured: EvaluationRecord,
    folder: Reference,
    home: Home,
) -> str:
    """Record a release and its model in the tracking store; the id of its run.

    Each stage is a child run. A release that was recorded before keeps its run.

    Raises:
        StorageError: the store cannot be reached, read or written.
    """
    public = folder.open()
    certificate = read_certificate(public)
    tracker = Tracker.open(home.tracking, home.artifacts)
    tags = {"spec.digest": request.digest, "ledger.entry": str(done.anchor.seq)}
    run = tracker.begin(
        done.charge.release, public_context_of(request).spec.name, request.method, tags
    )
    tracker.log_input(run, public_context_of(request).spec.name, done.spent.digest)
    tracker.log_plan(run, plan_json(done.plan))
    _record_spend(tracker, run, certificate)
    _record_measures(tracker, run, measured)
    tracker.log_certificate(run, public)
    ModelRegistry(tracker.client).register(
        run, done.model.open(), certificate, digest_of(public / YAML_NAME)
    )
    tracker.finish(run, succeeded=True)
    kept = {"runs": tracker.runs(run), "models": tracker.models(run)}
    write_json(home.release(done.charge.release) / RUNS_NAME, kept)
    return run


@recording_step("version", "version {done.charge.release}")
def version_release(
    request: ResolvedRequest, done: Certified, folder: Reference, home: Home
) -> Path:
    """Point DVC at the data, and give it the synthetic tables, their schema and the certificate.

    The folder of the pointers.
    """
    public = folder.open()
    context = public_context_of(request)
    tables = {stem: public / f"{stem}.parquet" for stem in context.files.values()}
    schemas = {pointer_of(name): public / name for name in published_schema(context).files}
    published = tables | schemas | {"certificate": public / YAML_NAME}
    source = _source(request, context)
    return Versions(home.versions, home.remote).track(done.charge.release, source, published)


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


def _source(request: ResolvedRequest, context: PublicContext) -> Path | None:
    """The file of the data; several tables are followed by the digest in the ledger alone."""
    declared = None if context.spec.tables else context.spec.source.path
    return request.data or (Path(declared).absolute() if declared else None)
