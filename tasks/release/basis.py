"""What a certificate is made from: the request, the plan, the ledger's entry, the drawn rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cloister.constraints.across import AcrossConstraint
from cloister.models.task import AnyPlan, Budget
from cloister.privacy.accounting.composition import is_counted
from cloister.privacy.certificate.certificate import ReusedRelease, Runner, Software
from cloister.privacy.exact import exact
from cloister.privacy.ledger import Anchor, BudgetStatus, Release
from cloister.privacy.ledger.accounts import ReadingMove
from cloister.schema.spec import PersonUnit, Spec
from cloister.tasks.release.synthesis import DrawnRows
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest


@dataclass(frozen=True)
class Basis:
    """What a certificate is made from; all of it is public.

    ``entry`` is the ledger's, for the release; ``anchor`` is the entry that made its charge final;
    ``budget`` is of the dataset and unit, after the charge. ``artefacts`` are SHA-256 by file name,
    ``model`` is the digest of the model that the rows were drawn from. ``secure`` says that all
    noise came from a secure source. ``reused`` are previous releases whose numbers were used,
    ``uncounted_releases`` those of the dataset that are not differentially private, this one too.
    ``blocks`` are the budgets of all blocks of growing data that were read, ``budget`` is the one
    with the least left. ``ran_by`` is who had the release run, ``moves`` are those of the account
    to other readings of its data.
    """

    request: ResolvedRequest
    context: PublicContext
    plan: AnyPlan
    entry: Release
    anchor: Anchor
    budget: BudgetStatus
    drawn: DrawnRows
    software: Software
    artefacts: Mapping[str, str]
    written: dt.date
    secure: bool
    model: str | None = None
    reused: Sequence[ReusedRelease] = ()
    uncounted_releases: int = 0
    blocks: Sequence[BudgetStatus] = ()
    ran_by: Runner | None = None
    moves: Sequence[ReadingMove] = ()

    @property
    def spec(self) -> Spec:
        """The declarations of the dataset."""
        return self.context.spec

    @property
    def epsilon(self) -> Fraction:
        """What was charged."""
        return self.entry.request.epsilon

    @property
    def delta(self) -> Fraction:
        """What was charged."""
        return self.entry.request.delta

    @property
    def planned(self) -> Budget:
        """What the plan costs at most: of one row, where a group of them is charged."""
        charged = Budget(self.epsilon, self.delta)
        return self.request.budget if self.spec.privacy.group else charged

    @property
    def shown_epsilon(self) -> Fraction:
        """What the rows reveal at most: of this release, and of those whose numbers it uses."""
        return self.epsilon + sum(exact(release.epsilon) for release in self.reused)

    @property
    def shown_delta(self) -> Fraction:
        """The delta of what the rows reveal."""
        return self.delta + sum(exact(release.delta) for release in self.reused)

    @property
    def counted(self) -> bool:
        """Whether all of the release is differentially private."""
        return is_counted(self.plan.event)

    @property
    def of_persons(self) -> tuple[str, ...]:
        """The key of persons with several rows and their attributes; empty if there are none."""
        persons = self.context.task.lead.persons
        return (persons.key, *persons.attributes) if persons else ()

    @property
    def of_several_blocks(self) -> bool:
        """Whether one unit may lie in several blocks of growing data, each with its own budget."""
        privacy = self.spec.privacy
        return privacy.block is not None and isinstance(privacy.protected, PersonUnit)

    @property
    def bound(self) -> Fraction | None:
        """What all releases of the budget period cost a unit at most; None if nothing bounds it.

        Of one block, that with the most; where a unit may lie in several, of all of them, over all
        periods.
        """
        if self.of_several_blocks:
            return self.budget.lifetime
        bounds = [status.bound for status in (self.budget, *self.blocks)]
        return None if None in bounds else max(filter(None, bounds), default=Fraction(0))

    @property
    def across(self) -> Sequence[AcrossConstraint]:
        """The constraints across foreign keys."""
        return self.context.task.across
