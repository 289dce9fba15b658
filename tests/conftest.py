"""A small declared dataset, a fitted model, and its certificate: made once per session."""

import datetime as dt
import gc
import math
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from absl import logging as absl_logging
from balanced import Balanced
from clubs import Place, Released, clubs
from hypothesis import HealthCheck, settings
from once import copy_of, once
from private_table import PrivateTable
from recorded import steps_of
from xdist.remote import Producer
from xdist.scheduler import Scheduling

from cloister.constraints import constraints_of
from cloister.constraints.counting import violation_reports
from cloister.files import write_whole
from cloister.flows.cli import console
from cloister.models.protocol import Model, fit, make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, DatabaseTask, Plan, Task
from cloister.privacy.certificate.provenance import software
from cloister.privacy.door.journal import Journal
from cloister.privacy.ledger import Ledger, ReservationRequest
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.schema.domain import Domain
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import SELDOM

# The same examples in each run, whatever the speed of the machine: only a change fails a test.
# --hypothesis-profile=nightly draws others, those of --hypothesis-seed, and of costly laws more.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "nightly", settings.get_profile("default"), derandomize=False, print_blob=True
)
settings.load_profile("default")

os.environ["CLOISTER_HOME"] = tempfile.mkdtemp(prefix="cloister-tests-")
os.environ.pop("PREFECT_HOME", None)  # that of the process that started this one, if it tests too
Home.current().prepare()
Home.current().configure()
console.PULSE = math.inf  # what commands say in tests does not depend on the machine's speed
absl_logging.get_absl_handler().python_handler.stream = (
    sys.__stderr__
)  # or Prefect's logging setup closes pytest's


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """With one file a worker at a time: the costliest first."""
    return Balanced(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect benchmarks where they are asked for alone: they load what no test needs."""
    benchmarks = collection_path.name == "benchmarks" and "tests" in collection_path.parts
    asked = config.option.markexpr.replace("not benchmark", "")
    return True if benchmarks and "benchmark" not in asked else None


def pytest_collection_finish() -> None:
    """Collect garbage as seldom as commands do; what was imported stays."""
    gc.freeze()
    gc.set_threshold(SELDOM)


ROWS = 2_000

SPEC = """
name: small
source: {path: data.csv}
privacy:
  unit: row
  relation: add_remove
  rows: {public: 2000}
  budget: {epsilon: 10, delta: 1e-4, per: year}
attributes:
  id: {type: text, pattern: "P{00001..99999}", provenance: numbering}
  "home town": {type: categorical, values: {file: towns.txt}, provenance: gazetteer}
  state-code: {type: ordinal, values: [A, B, C], provenance: gazetteer}
  "wage <€>":
    {type: integer, min: 0, max: 1000, step: 10, bins: 20, special: [0], provenance: tax form}
  since:
    {type: date, min: 2000-01-01, max: 2009-12-31, bins: 10, nullable: true, provenance: act 1999}
constraints:
  - {name: town-state, fd: "`home town` -> state-code"}
  - name: soft-pay
    deny: "t1.state-code < t2.state-code and t1.`wage <€>` > t2.`wage <€>`"
    soft: true
release: {method: kamino, epsilon: 2, delta: 1e-5}
"""

TOWNS = ["Aa", "Bé", 'C "quoted"', "D, with comma", "E-dash", "F"]


@dataclass(frozen=True)
class Fitted:
    """A spec, what it means, what was planned and what was fitted."""

    spec: Spec
    task: Task
    plan: Plan
    model: Model


def real_rows() -> pd.DataFrame:
    """The sensitive table of the small world."""
    rng = np.random.default_rng(7)
    town = rng.integers(0, len(TOWNS), ROWS)
    wage = np.where(rng.random(ROWS) < 0.2, 0, rng.integers(1, 60, ROWS) * 10 + 100 * (town // 2))
    since = pd.Series(
        pd.to_datetime("2000-01-01") + pd.to_timedelta(rng.integers(0, 3600, ROWS), unit="D")
    )
    return pd.DataFrame(
        {
            "id": [f"P{number:05d}" for number in range(1, ROWS + 1)],
            "home town": [TOWNS[at] for at in town],
            "state-code": [("A", "B", "C")[at // 2] for at in town],
            "wage <€>": wage,
            "since": since.where(rng.random(ROWS) < 0.9),
        }
    )


@pytest.fixture(scope="module", autouse=True)
def late_imports(request: pytest.FixtureRequest) -> None:
    """Import what a test file imports late, by its function of this name."""
    getattr(request.module, "late_imports", lambda: None)()


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores of releases that cost little, and are what the tools make.

    New tracking stores are copies of one that MLflow made, and DVC is loaded once.
    """
    from dvc_forks import Forks

    from cloister.tasks.stores import dvc_store, mlflow_database

    make, first = mlflow_database._make, tmp_path_factory.mktemp("store") / "mlflow.db"

    @wraps(make)
    def copied(path: Path, artifacts: str) -> None:
        if not first.exists():
            make(first, artifacts)
        write_whole(path, lambda part: shutil.copyfile(first, part))
        mlflow_database._relocate(f"sqlite:///{path}", artifacts)

    forks = Forks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlflow_database, "_make", copied)
        patch.setattr(dvc_store, "subprocess", forks)
        yield
    forks.close()


IDLE_SERVICES = (
    *("CANCELLATION_CLEANUP", "FOREMAN", "LATE_RUNS", "PAUSE_EXPIRATIONS", "REPOSSESSOR"),
    *("SCHEDULER", "TRIGGERS", "EVENT_PERSISTER"),
)
"""Loops of Prefect's server that no test waits for: a twelfth of a core."""


@pytest.fixture(scope="session")
def prefect_server(stores: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary Prefect server for all flows of the session; a copy of its new database.

    Another server that is given the copy makes none, which takes seconds.
    """
    from prefect import settings as prefect_settings
    from prefect.settings import get_current_settings, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    new = tmp_path_factory.mktemp("server") / "prefect.db"
    silent = {prefect_settings.PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    for service in IDLE_SERVICES:
        silent[getattr(prefect_settings, f"PREFECT_SERVER_SERVICES_{service}_ENABLED")] = False
    with temporary_settings(silent), prefect_test_harness(server_startup_timeout=180):
        url = get_current_settings().server.database.connection_url
        assert url
        place = url.get_secret_value().partition(":///")[2]
        with closing(sqlite3.connect(place)) as made, closing(sqlite3.connect(new)) as copy:
            made.backup(copy)
        yield new


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The clubs, in the home of one test."""
    made = clubs(tmp_path)
    monkeypatch.setenv("CLOISTER_HOME", str(made.home.folder))
    return made


@pytest.fixture(scope="session")
def released(prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> Released:
    """One release of the clubs, made by its command, which all workers look at."""
    from cloister.flows.cli.app import run

    def make(folder: Path) -> dict[str, Any]:
        made, before = clubs(folder), results_of_prefect()
        words = ["release", str(made.spec), "--out", str(folder / "out"), "--csv"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CLOISTER_HOME", str(made.home.folder))
            assert run([*words, "--seed-sampling", "7"]) == 0
        (release,) = (path.name for path in (made.home.folder / "releases").iterdir())
        persisted = [str(path) for path in results_of_prefect() - before]
        return {"id": release, "persisted": persisted, "steps": steps_of(release)}

    folder, made = once(tmp_path_factory, "released", make)
    return Released(Place(folder), **made)


def results_of_prefect() -> set[Path]:
    """The files in which Prefect keeps results; the messages of runs that failed are among them."""
    from prefect.settings import get_current_settings

    storage = get_current_settings().results.local_storage_path
    assert storage.is_relative_to(os.environ["PREFECT_HOME"])
    return {path for path in storage.rglob("*") if path.is_file()}


@pytest.fixture
def seeded_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases of this process draw the same noise each time, for tests of figures."""
    for place in (
        "cloister.tasks.data.sources.noise_source",
        "cloister.privacy.mechanisms.randomness.noise_source",
    ):
        monkeypatch.setattr(place, lambda: NoiseSource.insecure(1))


@pytest.fixture(scope="session")
def approved(released: Released, tmp_path_factory: pytest.TempPathFactory) -> Released:
    """The release of the clubs in a copy of its home, in which it was approved, and so sent."""
    from cloister.flows.review import move_release

    def make(folder: Path) -> None:
        home = Place(folder).home
        copy_of(released.place.home.folder, home.folder)
        move_release(home, released.id, "approved", "officer", "certificate read")

    folder, _ = once(tmp_path_factory, "approved", make)
    return replace(released, place=Place(folder))


@pytest.fixture(scope="session")
def small_spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    """The spec of the small world, with a value file beside it."""
    folder = tmp_path_factory.mktemp("specs")
    (folder / "towns.txt").write_text("\n".join(TOWNS) + "\n", encoding="utf-8")
    (folder / "small.yaml").write_text(SPEC, encoding="utf-8")
    return load_spec(folder / "small.yaml")


@pytest.fixture(scope="session")
def fitted(small_spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """A model of the small world."""
    domain = Domain.of(small_spec.attributes, small_spec.folder)
    constraints = constraints_of(small_spec.constraints, domain.names, small_spec.folder)
    task = Task(domain, constraints, ROWS, Neighbours())
    synthesizer = create("kamino")
    chosen = make_plan(
        synthesizer, task, Budget(small_spec.release.epsilon, small_spec.release.delta)
    )
    with Journal.open(tmp_path_factory.mktemp("journal"), {"test": "small"}) as journal:
        private = PrivateTable(
            domain.encode(real_rows()),
            task.neighbours,
            chosen.event,
            journal,
            NoiseSource.insecure(1),
        )
        return Fitted(small_spec, task, chosen, fit(synthesizer, private, task, _shortened(chosen)))


@pytest.fixture(scope="module")
def brief_training() -> Iterator[None]:
    """Kamino trains for 40 steps, a mixture for few, where nothing depends on their number."""
    from cloister.models.kamino.synthesizer import RECIPES

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloister.models.mixture.fit.LAST_STEPS", 60)
        for bound in ("FEWEST_STEPS", "MOST_STEPS"):
            patch.setattr(f"cloister.models.mixture.schedule.{bound}", 4)
        for name, recipe in RECIPES.items():
            brief = replace(recipe, trainer=replace(recipe.trainer, steps=40))
            patch.setitem(RECIPES, name, brief)
        yield


def _shortened(chosen: Plan) -> Plan:
    """The plan with a training of few steps, which spends less than was planned."""
    return replace(chosen, parameters=replace(chosen.parameters, steps=4))


@pytest.fixture(scope="session")
def basis(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory):
    """What the certificate of a release of the small world is made from."""
    from cloister.tasks.release.basis import Basis
    from cloister.tasks.release.synthesis import DrawnRows
    from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest

    spec, ledger = fitted.spec, Ledger.open(tmp_path_factory.mktemp("ledger") / "ledger.db")
    ledger.grant(spec.name, "row", 10, "1e-4", "year", "officer", "yearly budget")
    reservation = ReservationRequest(
        spec.name,
        "row",
        "add_remove",
        Fraction(2),
        Fraction(1, 10**5),
        fitted.plan.event.to_json(),
        "kamino",
        spec_digest(spec),
        "0.1.0+test",
        "run-1",
        release="r-0123456789",
    )
    ledger.reserve(reservation, "tester")
    ledger.spend("r-0123456789", "tester", "journal-1", "cd" * 32)
    anchor = ledger.anchor()
    assert anchor is not None
    rows = fitted.model.sample(500, SamplingSource(1))
    return Basis(
        request=ResolvedRequest(
            spec=spec.folder / "small.yaml",
            method="kamino",
            epsilon="2",
            delta="1e-5",
            rows=500,
            device="cpu",
            digest=spec_digest(spec),
            reason="named by the spec",
        ),
        context=PublicContext(spec, DatabaseTask.of(spec.name, fitted.task)),
        plan=fitted.plan,
        entry=ledger.release("r-0123456789"),
        anchor=anchor,
        budget=ledger.budget(spec.name, "row"),
        drawn=DrawnRows(
            {},
            {spec.name: 500},
            tuple(violation_reports(fitted.task.constraints, rows)),
            fitted.model.post_processing(),
            capacity=None,
        ),
        software=software("0123456789abcdef"),
        artefacts={"synthetic.parquet": "ab" * 32},
        written=dt.date(2026, 11, 21),
        secure=True,
    )
