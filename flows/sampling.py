"""More rows and answers from the model of an approved release: post-processing, at no cost."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from cloister.constraints.counting import violation_reports
from cloister.errors import InputError, StorageError
from cloister.flows import database_sampling
from cloister.flows.cli.console import show_facts, show_json, warn
from cloister.models.answers.answer import Answer, answer_question
from cloister.models.answers.figures import Estimand
from cloister.models.answers.question import parse_question
from cloister.models.protocol import HasBinaryColumns, counted_tables
from cloister.models.registry import methods_with
from cloister.models.sampling.drawing import Mapper, Sampler, Where, in_threads
from cloister.models.storage import SavedModel, load_saved
from cloister.models.task import Task
from cloister.privacy.ledger import Release, State
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import OUTSIDE, Column
from cloister.schema.domain import Domain
from cloister.schema.parsing import parse
from cloister.schema.relations import Database, Schema
from cloister.tasks.data import parts, tables
from cloister.tasks.data.workers import workers_of
from cloister.tasks.home.files import exclusive, require_room, size_of
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import release_of
from cloister.tasks.release.integrity import released_manifest
from cloister.tasks.requests import disk_room, resolved
from cloister.tasks.requests.release_request import require_workers

_WRITTEN: Mapping[str, str] = MappingProxyType(
    {
        "integer": "is no whole number; write digits alone, as 1200, without marks of thousands",
        "float": "is no number; write it with a decimal point and no mark of thousands, as 1234.5",
        "date": "is no date; write it in the format of the column, or as 2020-01-31",
        "datetime": "is no moment; write it in the format of the column, or as 2020-01-31 10:00:00",
    }
)
"""What to say of a text that is no value of a type; other types have lists of values."""


def conditions(texts: Iterable[str]) -> Where:
    """The condition of some COLUMN=VALUE texts.

    Nothing after the equals sign means a missing value.

    Raises:
        InputError: a text has no sign, or a column has two conditions.
    """
    where: dict[str, str | None] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise InputError(
                f"--where {name}: give COLUMN=VALUE, as in --where education=Doctorate"
            )
        if name in where:
            raise InputError(f"--where {name}: the column has two conditions; give one")
        where[name] = value or None
    return where


def require_declared(where: Where, domain: Domain) -> None:
    """Check that a condition names columns and values that are declared.

    Raises:
        InputError: it does not.
    """
    for name, value in where.items():
        if name not in domain or domain[name].kind == "key":
            columns = ", ".join(domain.modelled)
            raise InputError(
                f"--where: no column '{name}' can have a condition; use one of {columns}"
            )
        if fault := _fault(domain[name], value):
            raise InputError(f"--where: the value of '{name}' {fault}")


def conditions_on_units(where: Where, schema: Schema) -> Where:
    """The conditions on columns of the table of units, which may stand before them: users.age.

    Raises:
        InputError: a condition is on another table, or names no column or value that is declared.
    """
    lead = schema.lead
    for name in where:
        table = name.partition(".")[0]
        if table in schema.tables and table != lead and name not in schema.tables[lead]:
            raise InputError(
                f"--where {name}: rows of '{table}' belong to rows of '{lead}'; give conditions on "
                f"{', '.join(schema.tables[lead].modelled)}, or draw without, and select rows of "
                "the output"
            )
    of_units = {name.removeprefix(f"{lead}."): value for name, value in where.items()}
    require_declared(of_units, schema.tables[lead])
    return of_units


def require_of_persons(where: Where, task: Task) -> None:
    """Check that conditions on rows that belong to persons are on attributes of persons.

    Raises:
        InputError: one is on an attribute in which rows of a person differ.
    """
    shared = task.persons.attributes if task.persons else where
    for name in where:
        if name not in shared:
            usable = f"give conditions on {', '.join(shared)}, or " if shared else ""
            raise InputError(
                f"--where {name}: rows of a person differ in it; {usable}draw without, and select "
                "rows of the output"
            )


def _fault(column: Column, value: object) -> str:
    """What is wrong with a value of a column, and the remedy; empty if nothing is."""
    if value is None:
        return "" if column.null_code is not None else "is never missing; give one after the ="
    text = pd.Series([value], dtype=object)
    if column.encode(text)[0] != OUTSIDE:
        return ""
    unreadable = column.kind == "numeric" and bool(parse(text, column.attribute)[1].any())
    if unreadable:
        return _WRITTEN[column.attribute.type]
    return "is not in its declared domain; use a declared one"


_OPEN = (State.APPROVED, State.PUBLISHED)

_ONE_FILE = "--workers draw one table to a file; leave them out here"


@dataclass(frozen=True)
class Draw:
    """A request for rows; all of them fulfil each condition COLUMN=VALUE of ``where``.

    They go to a file; of several tables to a folder, in ``csv`` if that is wanted; or into the
    ``database`` of a URL. A ``binary`` one is for the binary columns of a copula in place of
    records. ``workers`` draw one table to a file in this process' place: ``local:N``, or those of
    a scheduler of Dask.
    """

    release: str
    rows: int
    out: Path = Path()
    where: tuple[str, ...] = ()
    seed: int | None = None
    binary: bool = False
    csv: bool = False
    database: str | None = None
    workers: str | None = None


def sample_release(home: Home, draw: Draw, as_json: bool) -> None:
    """Draw rows and write them to a new file, or several tables to a new folder, or a database.

    The same command again resumes an interrupted draw of one table to a file.

    Raises:
        InputError: the release is not approved, a condition is not COLUMN=VALUE, the model gives
            fewer rows, the file has another ending than .parquet or .csv, or workers cannot draw.
        StorageError: the file exists or cannot be written.
        VerificationError: the model is not the one that was released.
        SampleError: the rows cannot be drawn.
    """
    where = conditions(draw.where)
    require_workers(draw.workers)
    saved = approved_model(home, draw.release)
    tables.require_capacity(saved.model, draw.rows)
    destination = draw.database or str(draw.out)
    if saved.task.several:
        _sample_database(home, saved, draw, where)
    else:
        _sample_table(home, saved, draw, where)
    content = {"release": draw.release, "rows": draw.rows, "file": destination, "epsilon": 0}
    if as_json:
        show_json(content)
    else:
        show_facts("Drawn", content)


def _sample_table(home: Home, saved: SavedModel, draw: Draw, where: Where) -> None:
    task, model = saved.one
    if draw.csv:
        raise InputError("--csv is of several tables; give --out an ending of .csv")
    if draw.database and draw.workers:
        raise InputError(_ONE_FILE)
    require_declared(where, task.domain)
    require_of_persons(where, task)
    if draw.database and not draw.binary:
        require_room(home.folder, disk_room.file_bytes(task.domain, draw.rows))
        target = database_sampling.target_of(saved, draw.database, draw.release, _drawn(draw))
        rows = model.sample(draw.rows, SamplingSource(draw.seed), where)
        tables.require_hard_constraints(violation_reports(task.hard, rows))
        drawn = Database(saved.task.schema, {saved.task.schema.lead: rows})
        database_sampling.load_drawn(saved, drawn, target, home)
        return
    sampler = _binary_sampler(saved, draw) if draw.binary else model.sampler
    _require_room(draw, sampler.domain)
    with _alone(draw.out, _require_new), workers_of(draw.workers) as workers:
        mapper = workers.map if workers else in_threads
        if draw.binary:
            request = parts.SampleRequest(f"{saved.digest} binary", draw.rows, draw.seed)
            parts.sample_to(sampler, request, _beside(draw.out), mapper).replace(draw.out)
        else:
            _write(saved, draw, where, mapper)


def _require_room(draw: Draw, domain: Domain) -> None:
    """Check that the disk has room for a draw to a file; what an interrupted one left needs none.

    Raises:
        StorageError: it has not, or nothing can be written there.
    """
    text = disk_room.text_bytes(domain, draw.rows) if draw.out.suffix == ".csv" else 0
    needed = disk_room.draw_bytes(domain, draw.rows) + text
    require_room(draw.out.parent, needed - size_of(parts.folder_of(_beside(draw.out))))


def _sample_database(home: Home, saved: SavedModel, draw: Draw, where: Where) -> None:
    """Draw several tables to a folder or a database.

    Raises:
        InputError: a condition is on another table than that of the units, or binary columns or
            workers are asked for.
    """
    if draw.workers:
        raise InputError(_ONE_FILE)
    if draw.binary:
        raise InputError(
            "--binary is not available for several tables, since rows depend on those that they "
            "refer to; draw without it, and select rows of the output"
        )
    where = conditions_on_units(where, saved.task.schema)
    needed = disk_room.tables_bytes(saved.task, draw.rows, draw.csv)
    require_room(home.folder if draw.database else draw.out.parent, needed)
    if draw.database:
        target = database_sampling.target_of(saved, draw.database, draw.release, _drawn(draw))
        drawn = database_sampling.draw_database(saved, draw.rows, draw.seed, where)
        database_sampling.load_drawn(saved, drawn, target, home)
        return
    with _alone(draw.out, database_sampling.require_new_folder):
        drawn = database_sampling.draw_database(saved, draw.rows, draw.seed, where)
        database_sampling.write_database(saved, drawn, draw.out, draw.csv)


@contextmanager
def _alone(out: Path, require_free: Callable[[Path], None]) -> Iterator[None]:
    """Keep other commands from writing ``out``; it is checked before and after taking the lock.

    Raises:
        InputError: another command writes it.
        StorageError: nothing can be written beside it.
    """
    require_free(out)
    lock = out.with_name(f".{out.name}.lock")
    busy = f"another command draws to {out}; give another file with --out, or wait for its end"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(lock, busy):
            try:
                require_free(out)
                yield
            finally:
                lock.unlink(missing_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(f"{out} cannot be written ({reason}); make room") from None


def _drawn(draw: Draw) -> str:
    """What is drawn, in words that no other draw of the release has."""
    if draw.seed is None:
        return f"{draw.rows} rows, draw {secrets.token_hex(8)}"
    where = hashlib.sha256("\0".join(sorted(draw.where)).encode()).hexdigest()[:16]
    return f"{draw.rows} rows, seed {draw.seed}, conditions {where}"


def approved_model(home: Home, release: str) -> SavedModel:
    """The model of a release that was approved.

    Raises:
        InputError: there is no such release, or it is not approved.
        StorageError, VerificationError: its model cannot be read, or is not what was saved.
    """
    entry = release_of(home, release)
    _require_open(entry)
    return load_saved(home.release(release) / "model", _bound_model(home, entry))


def answer_of(saved: SavedModel, text: str, estimand: Estimand, confidence: float) -> Answer:
    """The answer of released numbers to a question; of one of several tables, ``TABLE: question``.

    Raises:
        InputError: the question cannot be read, or the model has no such table or no counts of it.
        SampleError: rows are needed that cannot be drawn.
    """
    tables = counted_tables(saved.model, saved.task)
    counted = {name: each for name, each in tables.items() if each.released}
    table, colon, rest = text.partition(":")
    names = [*counted] or [*saved.task.tables]
    if colon and table.strip() in saved.task.tables:
        name, text = table.strip(), rest
    elif len(names) == 1:
        (name,) = names
    else:
        raise InputError(
            f"'{saved.dataset}' has several tables: {', '.join(names)}; name the one that the "
            f'question is of, as in "{names[0]}: count()"'
        )
    if name not in counted:
        of_these = f", or ask of {' or '.join(counted)}" if counted else ""
        methods = " or ".join(methods_with("keeps_counts"))
        raise InputError(_NO_COUNTS.format(name, f"{methods}{of_these}"))
    question = parse_question(text, saved.task.tables[name].domain)
    return answer_question(question, counted[name], estimand, confidence)


_NO_COUNTS = (
    "the model of this release keeps no noisy counts of all rows of '{}', so that no figure has an "
    "interval: its method keeps none, or fewer rows of a unit were counted than it may have. Draw "
    "rows by `cloister sample` for a figure without an interval, or release by {}"
)


def _beside(out: Path) -> Path:
    """The Parquet file that rows are drawn to, before they are checked and moved or converted."""
    return out.with_name(f".{out.name}.parquet")


def _write(saved: SavedModel, draw: Draw, where: Where, mapper: Mapper) -> None:
    """Draw to a Parquet file beside the wanted one, check it, and move or convert it."""
    drawn = _beside(draw.out)
    task, model = saved.one
    request = parts.SampleRequest(saved.digest, draw.rows, draw.seed, where)
    parts.sample_to(model.sampler, request, drawn, mapper)
    tables.require_hard_constraints(tables.violations_in(drawn, task))
    context = resolved.PublicContext(saved.spec, saved.task)
    tables.require_published_schema(context, dict.fromkeys(context.tables, drawn))
    if draw.out.suffix == ".csv":
        tables.write_csv(drawn, draw.out, saved.spec)
        drawn.unlink()
    else:
        drawn.replace(draw.out)


def _binary_sampler(saved: SavedModel, draw: Draw) -> Sampler:
    """The sampler of the binary columns of a model, which are drawn to a Parquet file.

    Raises:
        InputError: the model has none, there is a condition, or the file has another ending.
    """
    _, model = saved.one
    if not isinstance(model, HasBinaryColumns):
        raise InputError(
            f"--binary: release {draw.release} has no binary columns; release with --method "
            f"{' or '.join(methods_with('binary_columns'))}"
        )
    if draw.where or draw.out.suffix != ".parquet":
        raise InputError("--binary: columns are written as .parquet, without --where")
    return model.binary_sampler


def _bound_model(home: Home, release: Release) -> str | None:
    """The digest of the model that was released.

    None, with a warning, for a release of an older version.
    """
    bound = released_manifest(home, release).lineage.model
    if not bound:
        warn(
            f"release {release.id} was made by a version that did not bind models to releases: "
            "nothing shows that the model in this home is the one that was reviewed"
        )
    return bound or None


def _require_new(out: Path) -> None:
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(
            f"{out}: rows are written as .parquet or .csv; give --out one of these endings"
        )
    if out.exists():
        raise StorageError(f"{out} exists; give another file with --out, or move it away")


def _require_open(release: Release) -> None:
    if release.state not in _OPEN:
        raise InputError(
            f"release {release.id} is {release.state.words}; rows are drawn from approved releases "
            "only: see cloister review"
        )
