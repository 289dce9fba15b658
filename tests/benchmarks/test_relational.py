"""Relationships at scale, and errors across a link of the shape of the relational paper."""

import resource
import statistics
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cloister.benchmarks.tables.movielens import movielens_tables
from cloister.evaluation.relations import compare_relation
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, DatabaseTask, Forecast, Task, task_of
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain, Table
from cloister.schema.relations import Database, ForeignKey, Schema
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.data.bounding import bound
from cloister.tasks.data.sources import private_database

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3_600)]

ROOT = Path(__file__).resolve().parents[2]
DELTA = Fraction(1, 10**6)


def released(
    real: Database, task: DatabaseTask, epsilon: Fraction, seed: int, method: str = "relational"
) -> tuple[Database, float, Forecast]:
    """Synthetic tables through the door, seconds of fit and draw, and their forecast."""
    synthesizer = create(method)
    plan = make_plan(synthesizer, task, Budget(epsilon, DELTA))
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder) / "journal", {"benchmark": "relational"}) as journal,
    ):
        begun = time.process_time()
        door = private_database(real, task, plan.event, journal, NoiseSource())
        model = synthesizer.train(door, task, plan)
        drawn = model.sample(task.output_rows, SamplingSource(seed))
        return drawn, time.process_time() - begun, plan.forecast


@pytest.fixture(scope="module")
def films() -> tuple[Database, DatabaseTask]:
    """The tables of the MovieLens shape, and their task."""
    tables = movielens_tables()
    spec = load_spec(ROOT / "data" / "specs" / "movielens.yaml")
    task = task_of(spec, {name: len(table) for name, table in tables.items()})
    assert isinstance(task, DatabaseTask)
    coded = {
        name: domain.encode(tables[name].astype("str"))
        for name, domain in task.schema.tables.items()
    }
    return bound(Database(task.schema, coded), b"k" * 32), task


EPSILONS = ("1", "2", "4", "1000")
RELEASES = 3


def test_errors_across_a_link(films, record) -> None:
    real, task = films
    (key,) = (key for key in task.schema.keys if key.column == "movie")
    lines, errors = [], {}
    for epsilon in EPSILONS:
        found = []
        for seed in range(RELEASES):
            drawn, seconds, _ = released(real, task, Fraction(epsilon), seed)
            relation = compare_relation(real, drawn, key)
            ways = {way.ways: way.half_l1 for way in relation.units.across}
            found.append((ways[2], ways[3], relation.units.sizes, seconds))
            assert relation.beyond[1] == relation.orphans[1] == 0
        figures = list(zip(*found, strict=True))
        errors[epsilon] = statistics.fmean(figures[1])
        texts = (
            f"{statistics.fmean(own):.4f} ± {statistics.stdev(own):.4f}" for own in figures[:3]
        )
        lines.append((epsilon, str(RELEASES), *texts, f"{statistics.fmean(figures[3]):.1f}"))
        print(*lines[-1], flush=True)
    headings = ("epsilon", "releases", "2-way", "3-way", "degrees", "CPU s")
    record("relational-figures", "Half L1 across a link", headings, lines)
    assert errors["1"] > errors["4"] > errors["1000"]


PARENT, CHILD = (TextKey(type="text", pattern=f"{letter}{{1..99999999}}") for letter in "PC")
SEVERAL = {f"x{at}": Integer(type="integer", min=0, max=99) for at in range(4)}
LISTED = {f"y{at}": Categorical(type="categorical", values=[*"abcdef"]) for at in range(4)}


@pytest.mark.parametrize("parents", [100_000, 1_000_000])
def test_parents_and_five_times_as_many_children(parents: int, record) -> None:
    rng = np.random.default_rng(1)
    children = 5 * parents
    key = ForeignKey("orders", "customer", "customers", "id", 12)
    domains = {
        "customers": Domain.of({"id": PARENT, **SEVERAL}, Path()),
        "orders": Domain.of({"customer": PARENT, **LISTED}, Path()),
    }
    owners = np.sort(rng.permutation(np.repeat(np.arange(parents), 12))[:children])
    codes = {f"x{at}": rng.integers(0, 100, parents) for at in range(4)}
    kept = rng.random((4, children)) < 0.5
    liked = {
        f"y{at}": np.where(
            kept[at], codes[f"x{at}"][owners] * 6 // 100, rng.integers(0, 6, children)
        )
        for at in range(4)
    }
    real = Database(
        Schema(domains, (key,), ("customers",)),
        {
            "customers": Table(domains["customers"], {"id": np.arange(parents), **codes}),
            "orders": Table(domains["orders"], {"customer": owners, **liked}),
        },
    )
    task = DatabaseTask(
        real.schema,
        {
            "customers": Task(domains["customers"], (), parents, Neighbours()),
            "orders": Task(domains["orders"], (), children, Neighbours(max_rows=12)),
        },
        Neighbours(),
        options={"table_method": "independent"},
    )
    drawn, seconds, forecast = released(real, task, Fraction(2), 1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    relation = compare_relation(real, drawn, key)
    ways = {way.ways: way.half_l1 for way in relation.units.across}
    line = (
        f"{parents:,} and {drawn.rows['orders']:,}",
        f"{seconds:.0f}",
        f"{forecast.seconds:.0f}",
        f"{memory:.1f}",
        f"{forecast.memory / 2**30:.1f}",
        f"{ways[2]:.4f}",
    )
    headings = (
        "parents and children",
        "CPU s",
        "forecast",
        "peak GiB",
        "forecast",
        "2-way half L1",
    )
    record(f"relational-scale-{parents}", "One-to-many at scale", headings, [line])
    assert relation.orphans[1] == relation.beyond[1] == 0
    assert seconds <= 600
