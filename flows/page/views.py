"""What each sheet of the page shows, from the ledger and the home; nothing is changed here."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from cloister.errors import CloisterError, InputError
from cloister.flows.page.charts import budget_chart
from cloister.flows.page.visitors import reading_problem
from cloister.privacy.certificate.certificate import PAGE_NAME
from cloister.privacy.ledger import BudgetStatus, Release, State
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.budgets import Budgets
from cloister.privacy.ledger.checks import find_release
from cloister.privacy.ledger.lookups import Follower, declined
from cloister.privacy.ledger.permissions import looking_problem, missing_of
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.ledger.budgets import composed_spend, grants_in
from cloister.tasks.ledger.fingerprints import accounts_of_same_data
from cloister.tasks.release.kept_files import ATTACKS_NAME
from cloister.tasks.release.reports import REPORT_NAME
from cloister.tasks.release.review import compare, declined_facts
from cloister.tasks.release.trail import entry_words

SHEET = 50
"""Releases or entries on one sheet."""

_PATIENCE = 5.0
"""Seconds for which a sheet waits for a ledger that another process has locked."""

_UNFINISHED = (State.RESERVED, State.SPENT)

MOVES = {
    State.CANDIDATE: ("approved", "rejected", "withdrawn"),
    State.APPROVED: ("published", "withdrawn"),
    State.PUBLISHED: ("withdrawn",),
    State.SPENT: ("withdrawn",),
    State.RESERVED: ("withdrawn",),
}
"""Where a person may move a release from each state."""


@dataclass
class Check:
    """The last verification, or attack, that was begun here: by whom, when, and what it found."""

    by: str = ""
    began: str = ""
    running: bool = False
    checked: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def begin(self, by: str, work: Callable[[], tuple[list[str], list[str]]]) -> None:
        """Do the work in the background, unless that is under way; it gives parts and findings."""
        with self._lock:
            if self.running:
                return
            self.running, self.by = True, by
            self.began = datetime.now(UTC).isoformat(timespec="seconds")
        Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], tuple[list[str], list[str]]]) -> None:
        try:
            self.checked, self.findings = work()
        except CloisterError as error:
            self.checked, self.findings = [], [str(error)]
        except Exception as error:  # noqa: BLE001 - any message may quote the data
            self.checked, self.findings = [], [f"unforeseen {type(error).__name__}; report this"]
        finally:
            self.running = False


class Sheets:
    """The sheets of one home. The ledger is followed: a visit reads only its new entries."""

    def __init__(self, name: str, home: Home) -> None:
        self.name, self.home, self.check = name, home, Check()
        self.attacks: defaultdict[str, Check] = defaultdict(Check)

    @cached_property
    def _follower(self) -> Follower:
        ledger = existing_ledger(self.home, _PATIENCE)
        if ledger is None:
            raise InputError(f"there is no ledger at {self.home.ledger} yet; release something")
        return Follower(ledger)

    @contextmanager
    def books(self) -> Iterator[tuple[LedgerState, str]]:
        """What the ledger says now, and the time of its clock."""
        with self._follower.reading() as (books, last):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            yield books, max(now, last.time) if last else now

    def problem(self, by: str) -> str | None:
        """Why somebody may not read this home; None if they may."""
        with self.books() as (books, _):
            return reading_problem(books.house, by)

    def name_of(self, by: str) -> str:
        """Return who acts, for people to read."""
        with self.books() as (books, _):
            return books.house.shown(by)

    def looking_problem(self, by: str) -> str | None:
        """Why somebody may not see attacks by the data, or its exact figures; None if they may."""
        with self.books() as (books, now):
            return looking_problem(books.house, by, now)

    def overview(self) -> dict[str, Any]:
        """What waits for whom, the accounts with the rest of their budgets, the last moves."""
        with self.books() as (books, now):
            releases = list(books.releases.values())
            return {
                "awaiting": [
                    (release, missing_of(books, release))
                    for release in releases
                    if release.state is State.CANDIDATE
                ],
                "unfinished": [release for release in releases if release.state in _UNFINISHED],
                "budgets": _budgets(books, now),
                "proposals": list(books.house.proposals.values()),
                "recent": sorted(releases, key=lambda release: release.steps[-1].seq)[
                    : -SHEET // 5 : -1
                ],
            }

    def releases(self, account: str, state: str, sheet: int) -> dict[str, Any]:
        """Releases, the last first: of an account or a state, or all."""
        with self.books() as (books, _):
            matching = [
                release
                for release in reversed(list(books.releases.values()))
                if account in ("", release.request.dataset) and state in ("", release.state.value)
            ]
            accounts = sorted({release.request.dataset for release in books.releases.values()})
        shown = matching[(sheet - 1) * SHEET : sheet * SHEET]
        sheets = max(1, -(-len(matching) // SHEET))
        return {
            "releases": shown,
            "number": len(matching),
            "sheet": sheet,
            "sheets": sheets,
            "accounts": accounts,
            "account": account,
            "state": state,
            "states": list(State),
        }

    def release(self, release: str, by: str) -> dict[str, Any]:
        """One release, for a visitor: what it cost, who moved it, what it may become.

        Raises:
            InputError: there is none of this name.
        """
        with self.books() as (books, now):
            entry = find_release(books, release)
            missing = missing_of(books, entry) if entry.state is State.CANDIDATE else ""
            rules = books.house.rules_of(entry.request.dataset)
            budgets = Budgets(books, *_owner(entry), now).statuses(entry.request.blocks)
        folder, exact = self.home.release(release), not self.looking_problem(by)
        return {
            "release": entry,
            "missing": missing,
            "rules": rules,
            "budget": min(budgets, key=lambda status: status.left),
            "moves": MOVES.get(entry.state, ()),
            "certificate": (folder / "public" / PAGE_NAME).is_file(),
            "report": exact and (folder / "internal" / REPORT_NAME).is_file(),
            "plots": self._plot_names(release) if exact else [],
            "same_data": accounts_of_same_data(self.home, entry, by),
            "attack": self.attacks[entry.id],
            "attacked": exact and (folder / "internal" / ATTACKS_NAME).is_file(),
        }

    def comparison(self, release: str, against: str, by: str) -> dict[str, Any]:
        """A release beside another of its account, by default the one before, for a visitor.

        Raises:
            InputError: there is no such release, or the other is of another account.
            VerificationError: a certificate is not what was recorded.
        """
        review = compare(self.home, release, by, against or None)
        views = [review.release, *([review.against] if review.against else [])]
        names = dict.fromkeys(name for view in views for name in view.metrics or {})
        exact = not self.looking_problem(by)
        with self.books() as (books, _):
            releases = books.reserved(*_owner(review.release.entry))
        return {
            "review": review,
            "views": views,
            "metrics": list(names),
            "others": [entry for entry in reversed(releases) if entry.id != release][:SHEET],
            "plots": {
                view.entry.id: self._plot_names(view.entry.id) if exact else [] for view in views
            },
        }

    def account(self, account: str) -> dict[str, Any]:
        """One account: its budgets over time, grants, rules, last releases and declined requests.

        Raises:
            InputError: there is none of this name.
        """
        with self.books() as (books, now):
            owners = [owner for owner in books.grants if owner[0] == account]
            if not owners:
                raise InputError(f"there is no account '{account}'")
            current = [
                status for status in _budgets(books, now) if status.budget.dataset == account
            ]
            releases = books.reserved(*owners[0])
            chart = budget_chart(releases, books.grants[owners[0]], now)
            composed = [(status, composed_spend(status)) for status in current]
            history = grants_in(books, account)[::-1]
            rules, opened = asdict(books.house.rules_of(account)), books.accounts.get(account)
            declines = declined(self._follower.ledger, account)
            refused = [declined_facts(entry, books.house) for entry in declines[: -SHEET - 1 : -1]]
        return {
            "account": account,
            "opened": opened,
            "budgets": composed,
            "chart": chart,
            "history": history,
            "rules": rules,
            "releases": releases[: -SHEET - 1 : -1],
            "declined": refused,
        }

    def entries(self, before: int) -> dict[str, Any]:
        """The entries of the ledger before a number, the last first; 0 for the newest."""
        with self._follower.reading() as (_, last):
            ledger, size = self._follower.ledger, last.seq if last else 0
        end = min(before - 1, size) if before else size
        with ledger.store.reading() as connection:
            read = [
                ledger.store.find(connection, number)
                for number in range(end, max(0, end - SHEET), -1)
            ]
        with self.books() as (books, _):
            entries = [
                (entry, entry_words(entry, books), books.house.shown(by))
                for entry in read
                if entry
                for by in [str(entry.body.get("by", ""))]
            ]
        return {"entries": entries, "size": size, "older": end - SHEET + 1, "last": last}

    def refusals(self) -> dict[str, Any]:
        """Releases whose data was refused, and reservations that were forfeited."""
        with self.books() as (books, _):
            refused = [
                release for release in reversed(list(books.releases.values())) if release.refused
            ]
            return {"releases": refused}

    def people(self) -> dict[str, Any]:
        """Who may do what, the rules, and what waits for a second officer."""
        with self.books() as (books, _):
            house = books.house
            return {
                "people": list(house.people.values()),
                "rules": {name: asdict(rules) for name, rules in house.rules.items()},
                "proposals": [
                    replace(each, body={**each.body, "by": house.shown(each.body["by"])})
                    for each in house.proposals.values()
                ],
            }

    def certificate(self, release: str) -> tuple[bytes, str]:
        """The page of a certificate, and the policy by which a browser may style it.

        Raises:
            InputError: there is no such release, or it has no certificate here.
        """
        return self._page(release, "public", PAGE_NAME)

    def report(self, release: str) -> tuple[bytes, str]:
        """The internal report of a release, as :meth:`certificate` has its page.

        Raises:
            InputError: there is no such release, or it has no report here.
        """
        return self._page(release, "internal", REPORT_NAME)

    def attacks_page(self, release: str) -> tuple[bytes, str]:
        """The internal page of attacks on a candidate, as :meth:`certificate` has its page.

        Raises:
            InputError: there is no such release, or it was not attacked.
        """
        return self._page(release, "internal", ATTACKS_NAME)

    def _page(self, release: str, folder: str, name: str) -> tuple[bytes, str]:
        try:
            text = (self._folder(release) / folder / name).read_bytes()
        except OSError:
            what = name.partition(".")[0]
            raise InputError(f"release {release} has no {what} in this home") from None
        styles = re.findall(rb"<style>(.*?)</style>", text, re.DOTALL)
        hashes = " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(style).digest()).decode()}'"
            for style in styles
        )
        return text, f"default-src 'none'; style-src {hashes}; frame-ancestors 'self'"

    def plot(self, release: str, name: str) -> Path:
        """A plot of the internal evaluation of a release.

        Raises:
            InputError: there is none of this name.
        """
        folder = self._folder(release) / "internal"
        if name not in self._plot_names(release):
            raise InputError(f"release {release} has no such plot in this home")
        return folder / name

    def _plot_names(self, release: str) -> list[str]:
        folder = self.home.release(release) / "internal"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))

    def _folder(self, release: str) -> Path:
        """The folder of a release that the ledger holds, whatever a visitor may have typed."""
        with self.books() as (books, _):
            return self.home.release(find_release(books, release).id)


def _budgets(books: LedgerState, now: str) -> list[BudgetStatus]:
    return [status for owner in books.grants for status in Budgets(books, *owner, now).statuses()]


def _owner(release: Release) -> tuple[str, str]:
    return release.request.dataset, release.request.unit
