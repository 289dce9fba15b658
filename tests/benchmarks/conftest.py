"""Figures of the suite: printed, and written between the markers of a document.

The variable ``CLOISTER_BENCHMARK_DOCUMENT`` names it.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from private_table import PrivateTable

from cloister.benchmarks.pages import figures as rendering
from cloister.benchmarks.pages.markdown import insert, markdown, surroundings
from cloister.constraints import DenialConstraint, constraints_of
from cloister.models.protocol import Model, make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, Task
from cloister.privacy.door.journal import Journal
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema.declarations import ConstraintDeclaration
from cloister.schema.domain import Domain, Table
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table

ROOT = Path(__file__).resolve().parents[2]
DATA = (ROOT / os.environ.get("CLOISTER_DATA", "../shared/data")).resolve()
COMMAND = (
    "CLOISTER_BENCHMARK_DOCUMENT={} .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/{}"
)

Record = Callable[[str, str, Sequence[str], Sequence[Sequence[str]]], None]


@dataclass(frozen=True)
class Real:
    """A real table and what its spec declares, with constraints of the spec or of a file."""

    table: Table
    task: Task


def real(name: str, file: str, rules: str | None = None) -> Real:
    """The table of a folder of real data.

    With ``rules``, soft constraints of that file in place of the spec's own.
    """
    spec = load_spec(ROOT / "data" / "specs" / f"{name}.yaml")
    domain = Domain.of(spec.attributes, spec.folder)
    declared, folder = spec.constraints, spec.folder
    if rules is not None:
        declared, folder = [ConstraintDeclaration(file=rules, soft=True)], DATA / name
    constraints: tuple[DenialConstraint, ...] = constraints_of(declared, domain.names, folder)
    table, _ = read_table(spec, domain, DATA / name / file)
    return Real(table, Task(domain, constraints, table.rows, Neighbours()))


@dataclass(frozen=True)
class Fit:
    """A model, and the CPU seconds of its two steps that meet the data."""

    model: Model
    train: float
    weigh: float


def fitted(data: Real, method: str = "kamino") -> Fit:
    """A model at epsilon 1 and delta 1e-6."""
    synthesizer = create(method)
    chosen = make_plan(synthesizer, data.task, Budget(Fraction(1), Fraction(1, 10**6)))
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder) / "journal", {"benchmark": method}) as journal,
    ):
        private = PrivateTable(
            data.table, data.task.neighbours, chosen.event, journal, NoiseSource()
        )
        begun = time.process_time()
        trained = synthesizer.train(private, data.task, chosen)
        between = time.process_time()
        model = synthesizer.weigh(private, data.task, chosen, trained)
        return Fit(model, between - begun, time.process_time() - between)


@pytest.fixture
def real_table() -> Callable[..., Real]:
    return real


@pytest.fixture
def real_from() -> type[Real]:
    return Real


@pytest.fixture
def fit_model() -> Callable[..., Fit]:
    return fitted


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Takes a table of figures: its marker, title, headings and lines."""
    document = os.environ.get("CLOISTER_BENCHMARK_DOCUMENT") or "docs/benchmarks/scale.md"
    command = COMMAND.format(document, Path(request.node.fspath).name)

    def write(
        marker: str, title: str, headings: Sequence[str], lines: Sequence[Sequence[str]]
    ) -> None:
        table = rendering.Table(title, tuple(headings), tuple(map(tuple, lines)))
        where = surroundings()
        text = (
            f"{title}:\n\n```sh\n{command}\n```\n\n{markdown(table)}\n\n"
            f"Measured on {where['date']}, Cloister {where['code']}, {where['cores']} cores, "
            "threads: "
            f"{where['threads']}, {where['platform']}."
        )
        print(f"\n{text}")
        if os.environ.get("CLOISTER_BENCHMARK_DOCUMENT"):
            insert(Path(document), marker, text)

    return write
