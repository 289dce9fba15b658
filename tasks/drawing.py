"""The step that draws rows from a fitted model: free, repeatable post-processing."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cloister.constraints import ViolationReport, violation_reports
from models.storage import load_model
from tasks.charging import Charge
from tasks.home import Home
from tasks.orders import Order, world_of
from tasks.outputs import drawn, read_synthetic, require_kept, write_parquet
from tasks.references import Reference
from tasks.steps import step


@dataclass(frozen=True)
class Drawn:
    """The synthetic file, and the violations of every constraint as counted on it; both public."""

    file: Reference
    violations: tuple[ViolationReport, ...]


@step("sample", "draw {order.rows} rows for {charge.release}")
def sample(order: Order, charge: Charge, model: Reference, home: Home) -> Drawn:
    """Draw exactly the rows that were asked, and count every constraint on the file that was written.

    Raises:
        SampleError: the rows cannot be drawn, or a hard constraint is violated.
    """
    world, folder = world_of(order), home.release(charge.release)
    seed = json.loads((folder / "order.json").read_text(encoding="utf-8"))["seed"]
    path = folder / "synthetic.parquet"
    write_parquet(drawn(load_model(model.open()), order.rows, seed).frame(), path)
    violations = violation_reports(world.task.constraints, read_synthetic(path, world.task))
    require_kept(violations)
    return Drawn(Reference.of(path), violations)
