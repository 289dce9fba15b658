"""The ledger's part in a release: whose budget is asked for what, and where the release stands."""

from __future__ import annotations

import hashlib
import json

from cloister.errors import BudgetExceeded, InputError
from cloister.privacy.events import Relation
from cloister.privacy.ledger import Anchor, Ledger, Request, State
from cloister.privacy.ledger.exact import decimal
from models.protocol import Plan
from tasks.code import code_version
from tasks.home import Home
from tasks.opening import noise_source
from tasks.orders import Order, World

COMPOSITION = "the sum of the epsilons of all releases (basic composition)"


def open_ledger(home: Home) -> Ledger:
    """The ledger of a home.

    Raises:
        StorageError: it cannot be reached, read or made.
    """
    home.prepare()
    return Ledger.open(home.ledger)


def spent_anchor(ledger: Ledger, release: str) -> Anchor:
    """The entry that made the charge of a release final."""
    spent = next(moved for moved in ledger.release(release).steps if moved.state is State.SPENT)
    return ledger.entries()[spent.seq - 1].anchor


def give_back(release: str, order: Order, home: Home) -> None:
    """Give back a reservation whose data was never asked; a charge that is final stays."""
    ledger = open_ledger(home)
    if ledger.release(release).state is State.RESERVED:
        ledger.advance(release, State.RELEASED_BACK, order.by, "the data could not be used; nothing was drawn")


def record_candidate(release: str, by: str, evidence: dict[str, str], home: Home) -> None:
    """Record that a release is ready for review, with digests of what is to be reviewed."""
    open_ledger(home).advance(release, State.CANDIDATE, by, "the release flow ended", evidence)


def spend_id(order: Order, world: World) -> str:
    """SHA-256 of everything that makes a fit what it is: spec, data, method, budget and code."""
    source = world.spec.source
    parts = {
        "spec": order.digest,
        "data": str(order.data or source.path or f"{source.url} {source.table}"),
        "method": order.method,
        "epsilon": str(order.budget.epsilon),
        "delta": str(order.budget.delta),
        "code": code_version(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def release_request(order: Order, world: World, plan: Plan) -> Request:
    """What an order asks of the ledger."""
    return Request(
        dataset=world.spec.name,
        unit=world.unit,
        relation=Relation(world.spec.privacy.relation).value,
        epsilon=order.budget.epsilon,
        delta=order.budget.delta,
        events=plan.event.to_json(),
        method=order.method,
        spec_digest=order.digest,
        code_version=code_version(),
        spend_id=spend_id(order, world),
        stain="" if noise_source().secure else "NOT PRIVATE: seeded noise",
    )


def grant_declared(ledger: Ledger, order: Order, world: World) -> None:
    """Grant what the spec declares to a dataset that has no budget yet."""
    try:
        ledger.budget(world.spec.name, world.unit)
    except InputError:
        declared = world.spec.privacy.budget
        _require_declared(order, world)
        reason = f"first release; declared in the spec with digest {order.digest[:16]}"
        ledger.grant(
            world.spec.name, world.unit, declared.epsilon, declared.delta, declared.per, f"spec ({order.by})", reason
        )


def _require_declared(order: Order, world: World) -> None:
    declared = world.spec.privacy.budget
    if order.budget.epsilon > declared.epsilon or order.budget.delta > declared.delta:
        raise BudgetExceeded(
            f"the spec gives '{world.spec.name}' a budget of epsilon {decimal(declared.epsilon)} and delta "
            f"{decimal(declared.delta)}, but epsilon {decimal(order.budget.epsilon)} and delta "
            f"{decimal(order.budget.delta)} was asked; ask for less, or have more granted with cloister budget grant"
        )
