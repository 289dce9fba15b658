"""The schema that receivers check synthetic tables by: generated, run without Cloister, exact."""

import datetime as dt
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pandera.pandas as pa
import pyarrow.parquet as pq
import pytest
from random_tables import random_table
from receiver import receive
from shape import Shape
from specs import spec_of

from cloister.constraints.counting import violation_reports
from cloister.constraints.schema_file import PublishedSchema, PublishedTable, broken_rules
from cloister.errors import SampleError
from cloister.models.task import Task, table_task
from cloister.schema.domain import Domain, Table
from cloister.schema.relations import Database
from cloister.schema.spec import Spec
from cloister.tasks.data.tables import (
    count_all_violations,
    published_schema,
    require_published_schema,
    write_table,
)
from cloister.tasks.requests.resolved import PublicContext, declared_context

DAY, MOMENT = dt.date, dt.datetime
WORDS = ["it's", 'say "no"', "a\nb", '"""', "{x}", "\\", "é€"]
TYPES = {
    "count": {"type": "integer", "min": 0, "max": 100, "special": [999], "nullable": True},
    "even": {"type": "integer", "min": 2, "max": 60, "step": 2},
    "narrow": {"type": "integer", "min": 0, "max": 90, "dtype": "int8"},
    "arrow": {"type": "integer", "min": 0, "max": 9, "dtype": "int64[pyarrow]", "nullable": True},
    "share": {"type": "float", "min": 0, "max": 1, "decimals": 2, "nullable": True},
    "half": {"type": "float", "min": 0.5, "max": 5, "decimals": 1, "step": 0.5},
    "single": {"type": "float", "min": 0, "max": 0.3, "decimals": 1, "dtype": "float32"},
    "fine": {"type": "float", "min": -3, "max": 3},
    "day": {"type": "date", "min": DAY(2020, 1, 1), "max": DAY(2020, 12, 31), "nullable": True},
    "far": {
        "type": "date", "min": DAY(1990, 1, 1), "max": DAY(2000, 1, 1),
        "special": [DAY(9999, 12, 31)],
    },
    "month": {"type": "date", "min": DAY(2019, 3, 1), "max": DAY(2021, 6, 1), "format": "%Y-%m"},
    "at": {"type": "datetime", "min": MOMENT(2020, 1, 1), "max": MOMENT(2020, 2, 1), "step": 60},
    "fast": {
        "type": "datetime", "min": MOMENT(2020, 1, 1), "max": MOMENT(2020, 1, 2), "step": 0.001
    },
    "zoned": {
        "type": "datetime", "min": MOMENT(2020, 1, 1), "max": MOMENT(2020, 2, 1), "step": 3600,
        "dtype": "datetime64[us, Europe/Zurich]", "nullable": True,
    },
    "clock": {
        "type": "integer", "min": 0, "max": 1439, "format": "%H:%M", "dtype": "time32[s][pyarrow]"
    },
    "length": {
        "type": "float", "min": 0, "max": 9, "decimals": 3, "dtype": "duration[us][pyarrow]"
    },
    "born": {
        "type": "date", "min": DAY(1950, 1, 1), "max": DAY(2000, 1, 1),
        "dtype": "date32[day][pyarrow]",
    },
    "kind": {"type": "categorical", "values": WORDS, "nullable": True},
    "grade": {"type": "ordinal", "values": ["low", "middle", "high"], "nullable": True},
    "band": {"type": "ordinal", "values": ["s", "m", "l"], "dtype": "category"},
    "code": {"type": "categorical", "values": [3, 1, 2], "nullable": True},
    "city": {"type": "categorical", "values": {"pattern": "city{01..1200}"}},
    "yes": {"type": "boolean"},
    "maybe": {"type": "boolean", "nullable": True},
    "said": {"type": "boolean", "true": "Y", "false": "N"},
    "written": {"type": "integer", "min": 0, "max": 9, "dtype": "string"},
    "key": {"type": "text", "pattern": "R{0001..9999}"},
    "serial": {"type": "text", "pattern": "{1..99999}", "dtype": "int64"},
    'odd "\'\n`name': {"type": "text", "pattern": "x{1..99999}y", "nullable": True,
                       "missing_share": 0.5},
}  # fmt: skip
"""A column of each type, storage and oddity."""

CLINIC = """
name: clinic
privacy: {unit: {table: patients}, relation: add_remove, rows: {public: 40},
  budget: {epsilon: 4, delta: 1e-5, per: ever}}
tables:
  patients:
    source: {path: patients.csv}
    key: id
    attributes:
      id: {type: text, pattern: "P{0001..9999}"}
      since: {type: date, min: 2020-01-01, max: 2020-12-31}
  visits:
    source: {path: visits.csv}
    rows: {public: 90}
    references: {patient: {table: patients, max_rows: 3}}
    attributes:
      number: {type: text, pattern: "V{00001..99999}"}
      patient: {type: text, pattern: "P{0001..9999}", nullable: true}
      day: {type: date, min: 2020-01-01, max: 2021-12-31}
      ward: {type: categorical, values: [a, b, c]}
      bed: {type: integer, min: 0, max: 99}
    constraints: [{name: numbers, key: [number]}, {name: beds, fd: bed -> ward}]
constraints: [{name: later, deny: visits.day < patients.since}]
release: {epsilon: 1, delta: 0}
"""


def typed_table(rows: int = 300) -> tuple[Spec, Table]:
    """A table of every type, its ends and missing cells among the rows."""
    spec = Shape(pd.DataFrame(), spec_of("types", rows, TYPES)).declared()
    domain, rng = Domain.of(spec.attributes, Path()), np.random.default_rng(1)
    codes = {}
    for column in domain:
        if column.kind == "key":
            codes[column.name] = column.fresh(np.arange(rows))
        else:
            ends = 0, column.size - 1
            codes[column.name] = np.array([*ends, *rng.integers(0, column.size, rows - 2)])
    return spec, Table(domain, codes)


def clinic() -> tuple[PublicContext, dict[str, Table]]:
    """Two tables that hold all rules of their spec."""
    import yaml

    context = declared_context(Spec.declared_in(Path(), yaml.safe_load(CLINIC)), 40)
    rng, (patients, visits) = np.random.default_rng(2), context.task.schema.tables.values()
    since = rng.integers(0, 366, 40)
    whose = np.sort(rng.choice(np.repeat(np.arange(40), 3), 90, replace=False))
    bed = rng.integers(0, 100, 90)
    codes = {"number": np.arange(90), "patient": whose, "ward": bed % 3, "bed": bed}
    tables = {
        "patients": Table(patients, {"id": np.arange(40), "since": since}),
        "visits": Table(visits, codes | {"day": since[whose] + rng.integers(0, 300, 90)}),
    }
    return context, tables


def written(folder: Path, schema: PublishedSchema, tables: dict[str, Table]) -> Path:
    """The folder with public files of these tables."""
    folder.mkdir()
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet")
    schema.write(folder)
    return folder


def of_task(task: Task) -> PublishedSchema:
    return PublishedSchema("random", {"synthetic": PublishedTable(task.domain, task.constraints)})


def random_case(seed: int) -> tuple[Task, Table]:
    shape = random_table(seed)
    task = table_task(shape.declared(), len(shape.frame))
    frame = shape.frame.apply(lambda column: column.map(str, na_action="ignore").astype("str"))
    return task, task.domain.encode(frame)


def failures(schema: pa.DataFrameSchema, frame: pd.DataFrame) -> set[str]:
    """The names of columns and rules that a frame breaks."""
    try:
        schema.validate(frame, lazy=True)
    except pa.errors.SchemaErrors as errors:
        return {
            error.schema.name if isinstance(error.schema, pa.Column) else
            getattr(error.check, "name", None) or str(error.check)
            for error in errors.schema_errors
        }  # fmt: skip
    return set()


def test_receivers_check_tables_of_all_shapes_without_cloister(tmp_path):
    spec, table = typed_table()
    folders = [
        written(tmp_path / "types", published_schema(declared_context(spec, 300)),
                {"synthetic": table}),
        written(tmp_path / "clinic", published_schema(clinic()[0]), clinic()[1]),
    ]  # fmt: skip
    folders += [written(tmp_path / f"{seed}", *_published(seed)) for seed in range(4)]
    done = receive(*folders)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 7
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_table_without_rows_is_as_declared(tmp_path):
    context, tables = clinic()
    cases = [(published_schema(context), tables), *map(_published, range(2))]
    for number, (schema, tables) in enumerate(cases):
        empty = {name: table.take(slice(0)) for name, table in tables.items()}
        folder = written(tmp_path / f"{number}", schema, empty)
        assert set(schema.load().validate(folder)) == set(tables)


def _published(seed: int) -> tuple[PublishedSchema, dict[str, Table]]:
    task, rows = random_case(seed)
    return of_task(task), {"synthetic": rows}


@pytest.mark.parametrize("seed", range(4))
def test_broken_rules_are_those_that_are_counted(seed):
    """Cells that are drawn anew break the rules that the exact counts say, and no others."""
    task, table = random_case(seed)
    schema, rng = of_task(task).load().schema, np.random.default_rng(seed)
    for number in (1, 3, 40):
        name = str(rng.choice(task.domain.names))
        codes = {each: np.array(values) for each, values in table.codes.items()}
        rows = rng.integers(0, table.rows, number)
        codes[name][rows] = rng.integers(0, task.domain[name].size, number)
        changed = Table(task.domain, codes)
        counted = {r.name for r in violation_reports(task.constraints, changed) if r.violations}
        broken = failures(schema, changed.frame())
        keys = {rule["name"] for rule in random_table(seed).spec["constraints"] if "key" in rule}
        assert {rule for rule in broken if rule.startswith("rule")} == counted - keys
        assert bool(counted & keys) == any("unique" in rule for rule in broken)


OPERATORS = (">", ">=", "<", "<=")


@pytest.mark.parametrize("first", OPERATORS)
@pytest.mark.parametrize("within", ["", "t1.maybe = t2.maybe and "])
def test_all_orders_are_those_that_are_counted(first, within):
    attributes = {name: TYPES[name] for name in ("count", "day", "grade", "maybe")}
    pairs, rng = (("count", "day"), ("day", "grade"), ("grade", "count")), np.random.default_rng(3)
    rules = [
        {"deny": f"{within}t1.{left} {first} t2.{left} and t1.{right} {second} t2.{right}"}
        for second, (left, right) in zip(OPERATORS, itertools.cycle(pairs), strict=False)
    ]
    task = table_task(Shape(pd.DataFrame(), spec_of("o", 6, attributes, rules)).declared(), 6)
    checks, seen = of_task(task).load().schema.checks, set()
    assert len(checks) == len(rules)
    for _ in range(5):
        codes = {c.name: rng.choice(min(c.size, 6), 3) for c in task.domain}
        table = Table(task.domain, codes).take(slice(int(rng.integers(0, 4))))
        for check, report in zip(checks, violation_reports(task.constraints, table), strict=True):
            seen.add(bool(report.violations))
            assert check(table.frame()).check_passed != bool(report.violations)
    assert seen == {True, False}


JUNE, NOON = pd.Timestamp("2020-06-01"), pd.Timestamp("2020-01-31 12:01")
MIDNIGHT = pd.Timestamp("2020-01-01 00:00", tz="UTC").tz_convert("Europe/Zurich")
RULES = {
    "t.count > 50 and t.kind = 'it''s'": lambda t: t.assign(count=60, kind="it's"),
    "t.grade > 'low' and t.yes = true": lambda t: t.assign(grade="high", yes=True),
    "t.day >= '2020-06-01' and t.code = 1": lambda t: t.assign(day=JUNE, code=1),
    "t.at > '2020-01-31 12:00' and t.said != 'N'": lambda t: t.assign(at=NOON, said="Y"),
    "t.zoned < '2020-01-01T01:00' and t.even > 1": lambda t: t.assign(zoned=MIDNIGHT),
    "t.share < t.half and t.narrow >= 0": lambda t: t.assign(share=0.1, half=0.5),
    "t.born < t.day": lambda t: t.assign(day=JUNE),
    "t.at < t.far + 25 years": lambda t: t.assign(at=NOON, far=pd.Timestamp("1996-02-29")),
    "day of t.at + 1 month = t.day": lambda t: t.assign(at=NOON, day=pd.Timestamp("2020-02-29")),
    "t.month - 40 days > t.zoned": lambda t: t.assign(month=JUNE, zoned=MIDNIGHT),
    "t.share + 0.25 = t.half": lambda t: t.assign(share=0.25, half=0.5),
    "t.count is missing and t.code is not missing": lambda t: t.assign(count=pd.NA, code=2),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_on_one_row_of_every_type_are_checked(rule):
    spec = Shape(pd.DataFrame(), spec_of("types", 9, TYPES, [{"deny": rule}])).declared()
    task, (_, table) = table_task(spec, 9), typed_table(40)
    module = of_task(task).load()
    assert module.UNCHECKED == {}
    reports = (violation_reports(task.constraints, table.take([row])) for row in range(table.rows))
    frame = table.take(np.array([not report.violations for (report,) in reports])).frame()
    assert failures(module.schema, frame) == set()
    broken = RULES[rule](frame.head(1)).astype(frame.dtypes)
    assert failures(module.schema, broken) == {"constraint_1"}


def _cell(name, value):
    def change(frame):
        changed = frame[name].copy()
        changed.iloc[3] = value
        return frame.assign(**{name: changed})

    return change


def _dtype(name, dtype):
    return lambda frame: frame.assign(**{name: frame[name].astype(dtype)})


PLANTED = {
    "another dtype": ("even", _dtype("even", "float64")),
    "another native dtype": ("clock", lambda f: f.assign(clock=range(len(f)))),
    "a missing cell": ("at", _cell("at", None)),
    "above the bound": ("narrow", _cell("narrow", 91)),
    "between bound and special value": ("count", _cell("count", 500)),
    "off the step": ("even", _cell("even", 3)),
    "below the bound of decimals": ("share", _cell("share", -0.01)),
    "too many decimals": ("share", _cell("share", 0.123)),
    "off the step of decimals": ("half", _cell("half", 0.7)),
    "infinite": ("fine", _cell("fine", float("inf"))),
    "a day outside": ("day", _cell("day", pd.Timestamp("2021-01-01"))),
    "a day with a time": ("day", _cell("day", pd.Timestamp("2020-03-01 12:00"))),
    "before a special day": ("far", _cell("far", pd.Timestamp("2050-01-01"))),
    "within a month": ("month", _cell("month", pd.Timestamp("2020-03-02"))),
    "off the seconds": ("at", _cell("at", pd.Timestamp("2020-01-03 00:00:30"))),
    "off the thousandths": ("fast", _cell("fast", pd.Timestamp("2020-01-01 00:00:00.0005"))),
    "a moment outside in its zone": ("zoned", _cell("zoned", MIDNIGHT + pd.Timedelta(days=32))),
    "a time of day with seconds": ("clock", _cell("clock", dt.time(8, 30, 1))),
    "a length outside": ("length", _cell("length", pd.Timedelta(seconds=9.5))),
    "a native day outside": ("born", _cell("born", DAY(2001, 1, 1))),
    "a value of no list": ("kind", _cell("kind", "other")),
    "a number of no list": ("code", _cell("code", 4)),
    "categories in another order": (
        "band", lambda f: f.assign(band=f.band.cat.reorder_categories(list("msl"), ordered=True))
    ),
    "a number beyond a pattern": ("city", _cell("city", "city1201")),
    "a word for a boolean": ("said", _cell("said", "True")),
    "a key of another pattern": ("key", _cell("key", "R12345x")),
    "a key with too few digits": ("key", _cell("key", "R1")),
    "a key beyond the pattern": ("serial", _cell("serial", 100_000)),
    "a column too many": ("types", lambda f: f.assign(more=1)),
    "a column too few": ("types", lambda f: f.drop(columns="even")),
}  # fmt: skip
"""Each kind of fault: the column that is broken, and what is done to the frame."""


@pytest.fixture(scope="module")
def every_type(tmp_path_factory):
    """The schema of every type, and a table as receivers read it."""
    spec, table = typed_table(60)
    schema = published_schema(declared_context(spec, 60))
    folder = written(tmp_path_factory.mktemp("types") / "out", schema, {"synthetic": table})
    return schema.load().schema, pd.read_parquet(folder / "synthetic.parquet")


@pytest.mark.parametrize("fault", PLANTED)
def test_each_kind_of_fault_is_found(every_type, fault):
    schema, frame = every_type
    column, plant = PLANTED[fault]
    named = failures(schema, plant(frame))
    assert named
    assert column in named or column == "types"


def test_keys_references_and_rules_across_tables_are_checked(tmp_path):
    context, tables = clinic()
    database = Database(context.task.schema, tables)
    assert not any(report.violations for report in count_all_violations(context.task, database))
    assert not any(rows for _, rows in database.dangling())
    faults = {
        "column 'id'": {"patients": {"id": 1}},
        "column 'number'": {"visits": {"number": 1}},
        "constraint 'visits: beds'": {"visits": {"bed": 7}},
        "column 'patient'": {"visits": {"patient": 5_000}},
        "constraint 'later'": {"patients": {"since": 365}},
    }
    files = {name: tmp_path / f"{name}.parquet" for name in tables}
    for name, fault in faults.items():
        for table, file in files.items():
            codes = {each: values.copy() for each, values in tables[table].codes.items()}
            for column, code in fault.get(table, {}).items():
                codes[column][-8:] = code
            write_table(Table(tables[table].domain, codes), file)
        assert broken_rules(published_schema(context), files)[0] == name
        with pytest.raises(SampleError, match="break their published schema"):
            require_published_schema(context, files)
        with pytest.raises(pa.errors.SchemaErrors):
            published_schema(context).load().validate(tmp_path)


def test_what_is_not_checked_is_said():
    rules = [
        {"name": "rare", "deny": "t.even > 50", "soft": True},
        {"name": "pairs", "deny": "t1.even > t2.half and t1.code = 1"},
        {"name": "texts", "deny": "t.written > 5"},
    ]
    spec = Shape(pd.DataFrame(), spec_of("types", 9, TYPES, rules)).declared()
    unchecked = of_task(table_task(spec, 9)).load().UNCHECKED
    assert set(unchecked) == {"rare", "pairs", "texts"}
    assert unchecked["rare"] == "it is soft"


def test_types_hold_in_each_row_group(tmp_path, monkeypatch):
    spec, table = typed_table(60)
    schema = published_schema(declared_context(spec, 60))
    assert _broken_in_groups(schema, table, tmp_path, monkeypatch) == ([], [])


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
)
def test_rules_broken_in_row_groups_are_those_of_the_whole_file(seed, tmp_path, monkeypatch):
    task, table = random_case(seed)
    rng = np.random.default_rng(seed)
    for name in task.domain.names:
        codes = {each: np.array(values) for each, values in table.codes.items()}
        rows = rng.integers(0, table.rows, 3)
        codes[name][rows] = rng.integers(0, task.domain[name].size, 3)
        changed = Table(task.domain, codes)
        whole, by_group = _broken_in_groups(of_task(task), changed, tmp_path, monkeypatch)
        assert whole == by_group


def _broken_in_groups(schema, table, folder, monkeypatch):
    """What a table breaks in a file of one row group, and of ten and more."""
    broken = []
    for rows in (table.rows, table.rows // 10):
        cells = rows * len(table.domain.names)
        monkeypatch.setattr("cloister.tasks.data.tables.CELLS_OF_GROUP", cells)
        write_table(table, folder / "rows.parquet")
        broken.append(sorted(broken_rules(schema, {"synthetic": folder / "rows.parquet"})))
    assert pq.read_metadata(folder / "rows.parquet").num_row_groups >= 10
    return tuple(broken)
