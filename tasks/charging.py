"""The steps that charge a release: reserve before the data is opened, spend before it is asked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cloister.errors import InputError
from cloister.privacy.ledger import Anchor
from cloister.privacy.randomness import SamplingSource
from models.protocol import Plan
from tasks.code import code_version
from tasks.home import Home
from tasks.ledgers import grant_declared, open_ledger, release_request, spent_anchor
from tasks.opening import open_data, open_door
from tasks.orders import Order, World, world_of
from tasks.plans import plan_digest, plan_json, require_kept, write_json
from tasks.steps import step


@dataclass(frozen=True)
class Charge:
    """The release that the ledger holds for an order, and whether an earlier run of it is gone on with."""

    release: str
    resumed: bool


@dataclass(frozen=True)
class DataReference:
    """The data of a running release: the id it is held under in this process, and its keyed digest."""

    release: str
    digest: str


@step("reserve", "reserve epsilon {order.budget.epsilon} of {order.spec.stem}")
def reserve(order: Order, plan: Plan, home: Home) -> Charge:
    """Reserve the price of a release, or find the unfinished one of the same order.

    Raises:
        BudgetExceeded: the budget does not hold it.
    """
    return reserved(order, world_of(order), plan, home)


def reserved(order: Order, world: World, plan: Plan, home: Home) -> Charge:
    """The release that the ledger reserves for an order, with its order and plan in its folder.

    Raises:
        PrivacyError: the plan costs more than the order asks for.
    """
    require_kept(plan, order.budget, world.task)
    ledger = open_ledger(home)
    grant_declared(ledger, order, world)
    reservation = ledger.reserve(release_request(order, world, plan), order.by)
    release = reservation.release.id
    folder = home.release(release)
    _keep_order(folder / "order.json", order)
    write_json(folder / "plan.json", plan_json(plan))
    return Charge(release, reservation.resumed)


def _keep_order(path: Path, order: Order) -> None:
    """Write the order with its seed, unless an earlier run did.

    Raises:
        InputError: the earlier run had another seed.
    """
    if not path.exists():
        write_json(path, order.with_seed(SamplingSource().seed if order.seed is None else order.seed).to_json())
    elif order.seed not in (None, json.loads(path.read_text(encoding="utf-8"))["seed"]):
        raise InputError("this release was begun with another --seed-sampling; give that one, or leave it out")


@step("validate", "validate data of {charge.release}")
def open_valid_data(order: Order, charge: Charge, home: Home) -> DataReference:
    """Read and validate the data; what was found stays inside.

    Raises:
        InputError: the data is not as declared.
    """
    opened, report = open_data(charge.release, order, world_of(order), home)
    write_json(home.release(charge.release) / "internal" / "validation.json", report.to_dict())
    return DataReference(charge.release, opened.digest)


@step("spend", "charge {charge.release}")
def spend(order: Order, charge: Charge, plan: Plan, data: DataReference, home: Home) -> Anchor:
    """Open the journal, and make the charge final: from here on the data is asked.

    Raises:
        JournalMismatch: the release was begun with other data, code, spec or parameters.
    """
    fingerprint = {"data": data.digest, "spec": order.digest, "code": code_version(), "plan": plan_digest(plan)}
    journal = open_door(charge.release, plan, world_of(order), fingerprint, home)
    ledger = open_ledger(home)
    ledger.spend(charge.release, order.by, journal.id, data.digest)
    return spent_anchor(ledger, charge.release)
