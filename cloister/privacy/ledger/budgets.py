"""What a budget holds, and whether another release fits.

The composition over all releases of the window that were not given back, the new one included, is
compared with the cap. Releases of another window or account do not count.

The ledger admits releases by the sum of their epsilons, or by a privacy filter where the rules of
the account say so: both hold even if each release is chosen after seeing those before it.
`together` is the tight composition of the events themselves. It holds for a schedule of releases
that was fixed in advance, and is shown beside the sum; it never admits a release.

The first reservation under the filter's rule begins the filter in its window, which it then rules
to its end. What was charged before keeps counting by its sum, and the filter has the rest of the
cap: a change of the rule frees nothing. The argument is in docs/privacy.md.

Source: Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters" (arXiv 1605.08294), on why the
    two differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import pairwise

from cloister.errors import BudgetExceeded, InputError
from cloister.figures import count_of
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger import composition
from cloister.privacy.ledger.accounts import BudgetGrant, Period
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.house import FILTER, SUM
from cloister.privacy.ledger.records import Release, ReservationRequest, State


@dataclass(frozen=True)
class BudgetStatus:
    """A budget and its use in one window.

    Amounts are epsilons at the budget's delta, None is infinite. ``spent`` composes the releases
    whose data may have been opened, ``reserved`` is what open reservations add, ``left`` what this
    budget and ``also_binding``, those of other periods that still hold, leave; ``left_delta`` is
    the same of deltas, added up. ``releases`` counts both. ``lifetime`` composes all windows: the
    loss of a person who is in the data throughout. ``refusals`` counts, over all windows, the runs
    whose data was refused, most of which cost nothing: each revealed an exact fact about the data.
    ``windows`` are those of all these budgets, ``next_admission`` is the rule of later ones;
    ``filtered`` is the least epsilon under which a filter holds the window, if that is its rule.
    ``queried`` are the charges of all windows whose data was, or may yet be, queried.

    Of growing data the budget is that of ``block``. ``lifetime``, at ``lifetime_delta``, composes
    all windows of all blocks: the loss of a person with rows in each.
    """

    budget: BudgetGrant
    window: str
    spent: Fraction | None
    reserved: Fraction | None
    left: Fraction
    left_delta: Fraction
    releases: int
    lifetime: Fraction | None
    refusals: int
    also_binding: tuple[BudgetGrant, ...] = ()
    windows: tuple[Window, ...] = ()
    next_admission: str = SUM
    filtered: Fraction | None = None
    queried: composition.Charges = field(default_factory=composition.Charges)
    block: str = ""
    lifetime_delta: Fraction = Fraction(0)

    @property
    def admission(self) -> str:
        """The rule that admits releases in this window."""
        return self.windows[0].admission

    @property
    def bound(self) -> Fraction | None:
        """What the window's releases reveal at most, at the budget's delta, however chosen.

        Where a filter keeps them within the budget, that; the sum may be less.
        """
        cap = self.budget.epsilon
        if not self.kept_by_filter:
            return self.spent
        return cap if self.spent is None else min(self.spent, cap)

    @property
    def kept_by_filter(self) -> bool:
        """Whether a filter keeps the window within its budget, which may have been lowered."""
        return self.filtered is not None and self.filtered <= self.budget.epsilon


@dataclass(frozen=True)
class Window:
    """The releases of an account in a window of a budget, and the rule that admits another.

    ``summed`` count by their epsilons and deltas, ``filtered`` by what a filter adds up.
    ``charged`` are those that count now, and ``relations`` theirs.
    """

    name: str
    admission: str
    summed: composition.Charges = field(default_factory=composition.Charges)
    filtered: tuple[Release, ...] = ()
    charged: composition.Charges = field(default_factory=composition.Charges)
    relations: frozenset[str] = frozenset()

    def total(
        self,
        delta: Fraction,
        compose: composition.Compose,
        further: Sequence[ReservationRequest] = (),
    ) -> Fraction | None:
        """The least epsilon of a budget at ``delta`` that holds the window and further requests.

        None if none does.
        """
        if self.admission == SUM:
            return composition.checked_composition(self.summed.plus(further), delta, compose)
        before = composition.checked_composition(self.summed, delta, compose)
        rest = delta - self.summed.sum.delta
        after = composition.filtered_cap(
            [*(release.request for release in self.filtered), *further], rest
        )
        return None if before is None or after is None else before + after

    def left(self, budget: BudgetGrant, compose: composition.Compose) -> tuple[Fraction, Fraction]:
        """The epsilon that a budget leaves, and the delta that those that add up leave."""
        total = self.total(budget.delta, compose)
        epsilon = Fraction(0) if total is None else max(Fraction(0), budget.epsilon - total)
        return epsilon, max(Fraction(0), budget.delta - self.summed.sum.delta)


@dataclass(frozen=True)
class Budgets:
    """The budgets of a dataset and unit at a time, by a composition, and what is charged to them.

    Each method is about the whole, or about a block of growing data.
    """

    books: LedgerState
    dataset: str
    unit: str
    time: str
    compose: composition.Compose = composition.basic_composition

    def binding(self) -> list[BudgetGrant]:
        """The budgets that hold, the last granted first; empty if none was granted.

        A budget of another period takes effect with the next window of both: until then the earlier
        one holds too, so that no change of the period frees what was spent. One for ever counts all
        that was, so the earlier ends with its own window. A budget of the same period replaces the
        one before at once.
        """
        grants = self.books.grants.get((self.dataset, self.unit), [])
        if not grants or self.dataset not in self.books.accounts:
            return [granted.budget for granted in grants[-1:]]
        binding = {grants[-1].budget.period: grants[-1].budget}
        for earlier, later in reversed(list(pairwise(grants))):
            period, changed = earlier.budget.period, later.time
            both = {period, later.budget.period} - ({Period.EVER} - {period})
            if any(spell.window(changed) == spell.window(self.time) for spell in both):
                binding.setdefault(period, earlier.budget)
        return list(binding.values())

    def releases(self, window: str, block: str | None = None) -> Iterator[Release]:
        """The releases reserved in a window, oldest first, whatever became of them."""
        reserved = self.books.reserved(self.dataset, self.unit, block)
        return (release for release in reserved if composition.falls_in(release, window))

    def charges(
        self, window: str, standings: Collection[composition.ChargeState], block: str | None = None
    ) -> composition.Charges:
        """The charges of releases of some standings in a window."""
        sums = self.books.sums_of(self.dataset, self.unit, window, block)
        parts = [part for key, part in sums if key.standing in standings]

        def requests() -> Iterator[ReservationRequest]:
            for release in self.releases(window, block):
                if composition.ChargeState.of(release) in standings:
                    yield release.request

        return composition.Charges(reduce(composition.Sum.plus, parts, composition.Sum()), requests)

    def window(self, period: Period, block: str | None = None) -> Window:
        """The window that the time falls in, and its rule."""
        name = period.window(self.time)
        keys = [key for key, _ in self.books.sums_of(self.dataset, self.unit, name, block)]
        charged = self.charges(name, composition.CHARGED, block)
        relations = frozenset(key.relation for key in keys if key.standing in composition.CHARGED)
        if FILTER not in {key.admission for key in keys}:
            rule = self.books.house.rules_of(self.dataset).admission
            return Window(name, rule, charged, (), charged, relations)
        releases = [*self.releases(name, block)]
        begun = next(release.steps[0].seq for release in releases if release.admission == FILTER)
        before = [release for release in releases if release.steps[0].seq < begun]
        summed = [release.request for release in before if not _given_back(release, begun)]
        filtered = tuple(release for release in releases[len(before) :] if release.state.charged)
        return Window(name, FILTER, composition.Charges.of(summed), filtered, charged, relations)

    def statuses(self, blocks: Sequence[str] = ()) -> list[BudgetStatus]:
        """The budget of each of some blocks of growing data, by default of all that were read.

        Of other data, or where none was read, that of the whole. Errors: ``BudgetExceeded`` if none
        was granted.
        """
        return [*map(self.status, blocks or self.books.blocks(self.dataset) or (None,))]

    def tightest(self, blocks: Sequence[str] = ()) -> BudgetStatus:
        """The budget of these with the least left.

        Errors: ``BudgetExceeded`` if none was granted.
        """
        return min(self.statuses(blocks), key=lambda status: (status.left, status.left_delta))

    def status(self, block: str | None = None) -> BudgetStatus:
        """The last budget that was granted, and its use in the window of the time.

        Raises:
            BudgetExceeded: none was granted.
        """
        binding = self.binding()
        if not binding:
            raise BudgetExceeded(
                f"No budget is granted to dataset '{self.dataset}' with privacy unit "
                f"'{self.unit}': grant one with cloister budget grant."
            )
        budget, *also_binding = binding
        ever = self.charges(Period.EVER, composition.CHARGED)
        lifetime_delta = budget.delta if block is None else max(budget.delta, ever.sum.delta)
        windows = tuple(self.window(grant.period, block) for grant in binding)
        current = windows[0]
        opened = self.charges(current.name, composition.FINAL, block)
        charged, spent = (self._composed(each, budget.delta) for each in (current.charged, opened))
        rooms = [
            window.left(grant, self.compose) for window, grant in zip(windows, binding, strict=True)
        ]
        return BudgetStatus(
            budget,
            current.name,
            spent,
            None if charged is None or spent is None else charged - spent,
            min(epsilon for epsilon, _ in rooms),
            min(delta for _, delta in rooms),
            len(current.charged),
            self._composed(ever, lifetime_delta),
            len(self.charges(Period.EVER, composition.REFUSALS)),
            tuple(also_binding),
            windows,
            self.books.house.rules_of(self.dataset).admission,
            current.total(budget.delta, self.compose) if current.admission == FILTER else None,
            self.charges(Period.EVER, composition.QUERIED),
            block or "",
            lifetime_delta,
        )

    def _composed(self, charges: composition.Charges, delta: Fraction) -> Fraction | None:
        return composition.checked_composition(charges, delta, self.compose)

    def admit(self, request: ReservationRequest) -> Fraction:
        """The least epsilon of the last budget that would hold its window with ``request`` in it.

        Of growing data each block that it reads has the budget; the greatest of what they compose
        to. Errors: ``BudgetExceeded`` if no budget was granted, one that holds would be exceeded,
        or an officer has to allow the next run; ``InputError`` if the window holds releases under
        another relation.
        """
        _require_allowed(self.books, request)
        return max(self._admit(request, block) for block in request.blocks or (None,))

    def _admit(self, request: ReservationRequest, block: str | None) -> Fraction:
        now = self.status(block)
        totals = []
        for budget, window in zip((now.budget, *now.also_binding), now.windows, strict=True):
            _require_one_relation(window, request)
            if window.admission == FILTER:
                composition.require_filtered(request)
            total = window.total(budget.delta, self.compose, [request])
            exceeded = window.admission == SUM and request.delta > budget.delta
            if total is None or total > budget.epsilon or exceeded:
                raise BudgetExceeded(_refusal(request, budget, window, self.compose, block))
            totals.append(total)
        return totals[0]


def _given_back(release: Release, entry: int) -> bool:
    """Whether a release was given back before an entry was written."""
    return release.state is State.REFUNDED and release.steps[-1].seq < entry


def _require_allowed(books: LedgerState, request: ReservationRequest) -> None:
    """Check that no forfeited reservation keeps an account from its next.

    Raises:
        BudgetExceeded: one does, until an officer allows it.
    """
    forfeited = books.forfeited(request.dataset, request.unit)
    if forfeited:
        raise BudgetExceeded(
            f"The data of account '{request.dataset}' was refused too often in one window, last "
            f"that of release {forfeited.id}, and each refusal is an exact answer about it: an "
            f"officer allows the next run with cloister budget allow {request.dataset} --reason "
            "TEXT. Nothing was charged."
        )


def _require_one_relation(window: Window, request: ReservationRequest) -> None:
    relations = window.relations - {request.relation}
    if relations:
        raise InputError(
            f"The budget of dataset '{request.dataset}' holds releases under the relation "
            f"'{min(relations)}', which do not add up with '{request.relation}': use one relation "
            "per dataset."
        )


def _refusal(
    request: ReservationRequest,
    cap: BudgetGrant,
    window: Window,
    compose: composition.Compose,
    block: str | None,
) -> str:
    total, number = window.total(cap.delta, compose), len(window.charged)
    left, left_delta = window.left(cap, compose)
    hold = "no finite epsilon" if total is None else decimal(total)
    requested = (
        f"epsilon {decimal(request.epsilon)} at delta {decimal(request.delta)} was requested"
    )
    by_filter, used_up = "", ""
    if window.admission == FILTER:
        needed = window.total(cap.delta, compose, [request])
        needs = "no epsilon" if needed is None else f"an epsilon of {decimal(needed)}"
        by_filter, requested = " by the filter", f"{requested}, with which it needs {needs}"
    elif request.delta > left_delta:
        used_up = (
            f"Of delta, which deltas of releases add up to, {decimal_below(left_delta)} is left. "
        )
    return (
        f"The budget of dataset '{cap.dataset}' (unit '{cap.unit}', "
        f"{f'block {block}, ' if block else ''}window {window.name}) is epsilon "
        f"{decimal_below(cap.epsilon)} at delta {decimal_below(cap.delta)}; "
        f"{count_of(number, 'release')} {'holds' if number == 1 else 'hold'} {hold}{by_filter} and "
        f"{decimal_below(left)} is left, but {requested}. "
        f"{used_up}Request less, or have more granted with cloister budget grant."
    )
