"""One combination of a benchmark, run by another library in an environment of its own; done once.

No ledger is charged: the output of a peer is no release, and its tables are declared public. Its
run is known by its script, requirements, table, epsilon, delta, seed and options, not by Cloister's
code.

    CLOISTER_HOME/peers/KEY/    job.json, log.txt, outcome.json, synthetic.npy,
                                evaluation-*.json by code
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloister.benchmarks.commands import Cost
from cloister.benchmarks.config import Combination, Peer
from cloister.benchmarks.peer_runs.coding import Coded, encode_table
from cloister.benchmarks.peer_runs.environments import digest, environment
from cloister.benchmarks.peer_runs.programs import DRIVER, Outcome, read_cells, run_program
from cloister.benchmarks.runs import Run, evaluate_table
from cloister.errors import CloisterError
from cloister.models.task import Budget
from cloister.schema.domain import Table
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.tasks.data.tables import write_parquet
from cloister.tasks.home.files import exclusive, write_json
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.home.process import evaluating_digest


@dataclass(frozen=True)
class Job:
    """A peer's run: its table, and the folder of its results."""

    peer: Peer
    coded: Coded
    seed: int
    folder: Path

    def outcome(self) -> Outcome | None:
        """How it ended, if it did; a time limit that was raised since is a reason to try again."""
        path = self.folder / "outcome.json"
        if not path.is_file():
            return None
        fields = json.loads(path.read_text(encoding="utf-8"))
        outcome = Outcome(**{**fields, "cost": Cost(**fields["cost"]) if fields["cost"] else None})
        return None if outcome.timed_out and outcome.seconds < self.peer.seconds else outcome

    def synthetic(self) -> Table:
        """The table of the cells that the peer's program wrote.

        Raises:
            CloisterError: they are not those of the public domains.
        """
        cells = read_cells(self.folder / "synthetic.npy", self.coded.rows, self.coded.sizes)
        return self.coded.decode(cells, self.seed)


def job_of(combination: Combination, home: Home) -> Job:
    """The run of a combination by its peer.

    Raises:
        InputError: the spec, the table, or a file of the peer cannot be used.
    """
    assert combination.peer is not None
    table = encode_table(combination.spec, combination.data, combination.peer.cells)
    budget = Budget(combination.epsilon, combination.delta)
    return job_on(table, combination.peer, budget, combination.seed, home)


def job_on(table: Coded, peer: Peer, budget: Budget, seed: int, home: Home) -> Job:
    """The run of a peer on a table.

    Raises:
        StorageError: a file of the peer cannot be read.
    """
    request = {
        "sizes": table.sizes,
        "rows": table.rows,
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        "seed": seed,
        "method": peer.method,
        "options": dict(peer.options),
    }
    known = [
        request,
        table.digest,
        *(digest(path) for path in (peer.program, peer.requirements, DRIVER)),
    ]
    key = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]
    folder = private_folder(home.folder / "peers" / key)
    write_json(folder / "job.json", request)
    return Job(peer, table, seed, folder)


def finished_run(combination: Combination, home: Home) -> Run | None:
    """The run of a combination that ended before, well or not, if there is one."""
    job = job_of(combination, home)
    outcome = job.outcome()
    if outcome is None:
        return None
    if outcome.error:
        return _failed(combination, outcome)
    record = _record(job, combination)
    return _measured(combination, outcome, _read(record)) if record.is_file() else None


def run(combination: Combination, bench_home: Home, home: Home) -> Run:
    """Have the peer synthesize, and evaluate its table as that of a release.

    A failure is part of the result.
    """
    job = job_of(combination, home)
    try:
        outcome = synthesize(job, home)
        if outcome.error:
            return _failed(combination, outcome)
        write_json(_record(job, combination), _evaluation(job, combination, bench_home))
    except CloisterError as error:
        return Run.of(combination, error=str(error))
    return _measured(combination, outcome, _read(_record(job, combination)))


def synthesize(job: Job, home: Home) -> Outcome:
    """How the peer's program ended, now or before.

    A program that was killed from outside will be run again.

    Raises:
        CloisterError: its environment cannot be made, or it was killed from outside.
    """
    return job.outcome() or _waited(job, environment(job.peer.requirements, home, job.peer.python))


def _waited(job: Job, python: Path) -> Outcome:
    """Let no two processes do the same run."""
    with exclusive(job.folder / "lock"):
        outcome = job.outcome() or run_program(
            python, job.peer.program, job.coded, job.folder, job.peer.seconds
        )
        write_json(job.folder / "outcome.json", asdict(outcome))
        return outcome


def _evaluation(job: Job, combination: Combination, bench_home: Home) -> Any:
    with tempfile.TemporaryDirectory(prefix="cloister-") as folder:
        path = Path(folder) / "synthetic.parquet"
        write_parquet(job.synthetic().frame(), path)
        return evaluate_table(combination, path, bench_home)


def _record(job: Job, combination: Combination) -> Path:
    """The file of the evaluation by this code."""
    evaluation = combination.evaluation
    parts = (
        spec_digest(load_spec(combination.spec)),
        evaluation.level,
        evaluation.panel,
        *evaluation.targets,
        combination.conjunctions,
        evaluating_digest(),
    )
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return job.folder / f"evaluation-{name}.json"


def _failed(combination: Combination, outcome: Outcome) -> Run:
    return Run.of(combination, error=outcome.error, finding=True, cost=outcome.cost)


def _measured(combination: Combination, outcome: Outcome, evaluation: Any) -> Run:
    return Run.of(combination, cost=outcome.cost, evaluation=evaluation)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
