"""Training and weighing: the only steps that ask the data, and only through the door."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from models.protocol import Model, Plan
from models.registry import create
from models.storage import load_model, save_model
from tasks.charging import Charge
from tasks.home import Home
from tasks.opening import door
from tasks.orders import Order, World, world_of
from tasks.progress import reporter
from tasks.references import Reference
from tasks.steps import step


@step("train", "train {order.method} for {charge.release}")
def train(order: Order, charge: Charge, plan: Plan, home: Home) -> Reference:
    """The model of rows, on disk.

    Raises:
        UnplannedQuery: the method asked for something that the plan does not hold.
    """
    world = world_of(order)
    synthesizer = create(order.method, partial(_advanced, "train"))
    model = synthesizer.train(door(charge.release).private, world.task, plan)
    return _saved(home.release(charge.release) / "trained", order, world, model)


@step("weights", "weigh soft constraints for {charge.release}")
def weigh(order: Order, charge: Charge, plan: Plan, trained: Reference, home: Home) -> Reference:
    """The model with its soft constraints weighed, on disk; the journal is sealed: nothing more is asked."""
    world, opened = world_of(order), door(charge.release)
    model = load_model(trained.open())
    weighed = create(order.method).weigh(opened.private, world.task, plan, model)
    opened.journal.seal()
    return _saved(home.release(charge.release) / "model", order, world, weighed)


def _saved(folder: Path, order: Order, world: World, model: Model) -> Reference:
    return Reference.of(save_model(folder, order.method, model, world.task, world.spec))


def _advanced(step_name: str, done: int, total: int) -> None:
    reporter().advanced(step_name, done, total)
