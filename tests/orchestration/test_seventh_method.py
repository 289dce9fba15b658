"""A method with its own query is released, certified and verified: a module and a registry line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from cloister.flows.cli.app import run
from cloister.models.protocol import Synthesizer
from cloister.models.registry import METHODS
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler
from cloister.models.task import Budget, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.noise import DiscreteLaplace, Neighbours
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Query, TableRows
from cloister.schema.domain import Domain, Table
from cloister.tasks.release.verify import verify_records


@dataclass(frozen=True)
class UpperHalves(Query[TableRows, Sensitivity, np.ndarray]):
    """Rows whose code lies in the upper half of its column.

    Proof: a row changes each of the counts by at most one.
    """

    name: ClassVar[str] = "upper halves"
    columns: tuple[str, ...]

    def request(self) -> Mapping[str, Any]:
        return {"of": list(self.columns)}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return Sensitivity.box(len(self.columns), neighbours.max_rows)

    def exact(self, rows: TableRows, source) -> np.ndarray:
        domain, codes = rows.table.domain, rows.table.codes
        upper = [(2 * codes[name] >= domain[name].size).sum() for name in self.columns]
        return np.array(upper, dtype=np.int64)

    def outcome(self, noisy: np.ndarray) -> np.ndarray:
        return noisy


@dataclass(frozen=True)
class HalvesParameters(Parameters):
    epsilon: Fraction


@dataclass(frozen=True)
class HalvesModel(Sampler):
    """Each value even within its half.

    Gives at most as many rows as the data was declared to have.
    """

    domain: Domain
    upper: np.ndarray
    capacity: int
    histograms: ClassVar[dict] = {}

    @property
    def sampler(self) -> HalvesModel:
        return self

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        draw, codes = rng.generator, {}
        for name, share in zip(self.domain.names, self.upper, strict=True):
            half = -(-self.domain[name].size // 2)
            high = draw.random(rows) < share
            upper = draw.integers(half, self.domain[name].size, rows)
            codes[name] = np.where(high, upper, draw.integers(0, half, rows))
        return Table(self.domain, codes)

    def post_processing(self) -> tuple[str, ...]:
        return ("each value is drawn evenly within its half",)

    def state(self):
        return {}, {"upper": self.upper}


class Halves(Synthesizer[HalvesParameters, HalvesModel]):
    name, summary = "halves", "the upper half of each column, for a test"

    def __init__(self, progress) -> None:
        del progress

    def sequence(self, task: Task) -> tuple[str, ...]:
        return task.domain.names

    def search(self, task: Task, sequence, budget: Budget) -> Plan[HalvesParameters]:
        sensitivity = UpperHalves(sequence).sensitivity(task.neighbours)
        event = DiscreteLaplace(budget.epsilon).event(sensitivity)
        stages = (Stage("halves", event, "noisy rows in the upper half of each column"),)
        parameters = HalvesParameters(budget.epsilon)
        return Plan(self.name, sequence, stages, parameters, Forecast(1.0, 1 << 20))

    def train(self, private, task: Task, plan: Plan[HalvesParameters]) -> HalvesModel:
        laplace = DiscreteLaplace(plan.parameters.epsilon)
        counts = private.answer(UpperHalves(plan.sequence), laplace, "halves")
        return HalvesModel(task.domain, np.clip(counts / task.data_rows, 0, 1), task.data_rows)

    def restore(self, task: Task, meta, arrays) -> HalvesModel:
        return HalvesModel(task.domain, arrays["upper"], task.data_rows)


def test_seventh_method_is_charged_released_certified_and_verified(
    place, prefect_server, monkeypatch, capsys
):
    monkeypatch.setitem(METHODS, "halves", Halves)
    head, _, rest = place.spec.read_text(encoding="utf-8").partition("constraints:")
    place.spec.write_text(head + "release:" + rest.partition("release:")[2], encoding="utf-8")
    words = ["--method", "halves", "--epsilon", "1/2", "--evaluate", "none", "--json"]
    assert run(["release", str(place.spec), *words]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["method"], said["epsilon"], said["budget_left"]) == ("halves", "1/2", "3.5")
    assert verify_records(place.home, None)[1] == []
    public = place.home.release(said["release"]) / "public"
    page = (public / "certificate.yaml").read_text(encoding="utf-8")
    assert "each value is drawn evenly within its half" in page
    assert "at most 2000 rows" in page
    assert "cost nothing" not in page
    assert "soft constraints" not in page
    assert run(["review", "approve", said["release"], "--reason", "fine"]) == 0
    out = place.folder / "more.csv"
    assert run(["sample", said["release"], "--rows", "2001", "--out", str(out)]) == 2
    assert "at most 2000" in capsys.readouterr().err
    assert run(["sample", said["release"], "--rows", "50", "--out", str(out)]) == 0
    assert len(out.read_text(encoding="utf-8").splitlines()) == 51
