"""Training and weighing: the only steps that query the data, and only through the door."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cloister.models.plan import AnyPlan
from cloister.models.protocol import Model
from cloister.models.registry import create
from cloister.models.storage import load_model, save_model
from cloister.tasks.data.session import AnySpent
from cloister.tasks.ledger.transitions import seal
from cloister.tasks.release.kept_request import kept_prior
from cloister.tasks.release.prior import reusing
from cloister.tasks.requests.public_context import PublicContext, public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.progress import reporter
from cloister.tasks.runtime.references import Reference
from cloister.tasks.runtime.step import step


@step("train", "train {request.method} for {spent.release}")
def train_model(request: ResolvedRequest, spent: AnySpent, plan: AnyPlan, home: Home) -> Reference:
    """The model of rows, on disk.

    Raises:
        UnplannedQuery: the method made a query that the plan does not hold.
    """
    context = public_context_of(request)
    synthesizer = create(request.method, partial(_advanced, "train"))
    if prior := kept_prior(home.release(spent.release)):
        synthesizer = reusing(synthesizer, prior, home)
    model = synthesizer.train(spent.private, context.task, plan)
    return _saved(home.release(spent.release) / "trained", request, context, model)


@step("weights", "weigh soft constraints for {spent.release}")
def weigh_constraints(
    request: ResolvedRequest,
    spent: AnySpent,
    plan: AnyPlan,
    trained: Reference,
    home: Home,
) -> Reference:
    """The model with its soft constraints weighed, on disk.

    The journal is sealed: no more queries.
    """
    context = public_context_of(request)
    model = load_model(trained.open())
    weighed = create(request.method).weigh(spent.private, context.task, plan, model)
    seal(spent.release, request, spent.journal, home)
    return _saved(home.release(spent.release) / "model", request, context, weighed)


def _saved(
    folder: Path, request: ResolvedRequest, context: PublicContext, model: Model
) -> Reference:
    return Reference.of(save_model(folder, request.method, model, context.task, context.spec))


def _advanced(step_name: str, done: int, total: int) -> None:
    reporter().advance(step_name, done, total)
