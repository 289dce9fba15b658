"""The step that draws rows from a fitted model: free, repeatable post-processing."""

from __future__ import annotations

from dataclasses import dataclass

from cloister.constraints import ViolationReport, violation_reports
from models.storage import load_model
from tasks.release.charge import ReservedRelease
from tasks.release.retained import kept_seed
from tasks.requests.resolved import ResolvedRequest, public_context_of
from tasks.runtime.home import Home
from tasks.runtime.references import Reference
from tasks.runtime.step import step
from tasks.runtime.tables import draw_rows, read_synthetic, require_hard_constraints, write_parquet


@dataclass(frozen=True)
class Drawn:
    """The synthetic file, and what a certificate says of it; all public.

    ``violations`` are those of every constraint, counted on the file; ``post_processing`` and
    ``capacity`` are the model's.
    """

    file: Reference
    violations: tuple[ViolationReport, ...]
    post_processing: tuple[str, ...]
    capacity: int | None


@step("sample", "draw {request.rows} rows for {charge.release}")
def sample_rows(
    request: ResolvedRequest, charge: ReservedRelease, model: Reference, home: Home
) -> Drawn:
    """Draw exactly the requested rows, and count every constraint on the file that was written.

    Raises:
        SampleError: the rows cannot be drawn, or a hard constraint is violated.
    """
    context, folder = public_context_of(request), home.release(charge.release)
    path = folder / "synthetic.parquet"
    fitted = load_model(model.open())
    write_parquet(draw_rows(fitted, request.rows, kept_seed(folder)).frame(), path)
    violations = violation_reports(context.task.constraints, read_synthetic(path, context.task))
    require_hard_constraints(violations)
    return Drawn(Reference.of(path), violations, fitted.post_processing(), fitted.capacity)
