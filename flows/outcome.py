"""What a release flow returns: public values, an internal evaluation, and places of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloister.constraints.denial import ViolationReport
from cloister.evaluation.report import AnyEvaluation
from cloister.privacy.exact import decimal_below
from cloister.privacy.ledger import BudgetStatus
from cloister.tasks.requests.plan import StageCost
from cloister.tasks.requests.resolved import ResolvedRequest


@dataclass(frozen=True)
class Outcome:
    """A release that is ready for review.

    ``spent`` is the epsilon of all stages together as accounted, at most what was asked.
    ``rows`` are those of each synthetic table; ``evaluation`` is internal.
    """

    release: str
    dataset: str
    request: ResolvedRequest
    stages: tuple[StageCost, ...]
    spent: float
    rows: Mapping[str, int]
    violations: tuple[ViolationReport, ...]
    evaluation: AnyEvaluation
    budget: BudgetStatus
    public: Path
    internal: Path
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON values; ``internal`` must not be shared."""
        return {
            "release": self.release,
            "dataset": self.dataset,
            "method": self.request.method,
            "reason": self.request.reason,
            "rows": self.request.rows,
            "tables": dict(self.rows),
            "epsilon": str(self.request.budget.epsilon),
            "delta": str(self.request.budget.delta),
            "accounted_epsilon": self.spent,
            "stages": [stage.to_json() for stage in self.stages],
            "budget_left": decimal_below(self.budget.left),
            "budget_granted": decimal_below(self.budget.budget.epsilon),
            "budget_window": self.budget.window,
            "violations": [
                {"name": v.name, "hard": v.hard, "violations": v.violations, "percent": v.percent}
                for v in self.violations
            ],
            "warnings": list(self.warnings),
            "internal": self.evaluation.to_dict(),
            "files": {"public": str(self.public), "internal": str(self.internal)}
            | ({"database": self.request.database} if self.request.database else {}),
        }


@dataclass(frozen=True)
class Finished:
    """A release that an earlier run finished but did not report: its outcome, as JSON values."""

    release: str
    content: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON values, with ``earlier`` set."""
        return self.content
