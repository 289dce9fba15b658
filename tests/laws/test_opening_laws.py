"""One more unit moves the opened table by its rows at most: read, validated, encoded, bounded."""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import few
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specs import spec_of

from cloister.schema.sources.reading import read_frame
from cloister.schema.spec import SourceSpec, Spec
from cloister.tasks.data.sources import TablesSource, cell_hashes
from cloister.tasks.home.home import Home
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve

MOST = 2
KEYS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "pattern": "{1..9}"},
    "integer": {"type": "integer", "min": 0, "max": 9},
    "float": {"type": "float", "min": 0, "max": 9, "decimals": 1},
    "date": {"type": "date", "min": "0001-01-01", "max": "9999-12-31"},
    "datetime": {"type": "datetime", "min": "0001-01-01T00:00:00", "max": "9999-12-31T00:00:00"},
}
NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 2.0, 2.5, 7.0, 7.5, 1e17, float("nan"), float("inf")])
DAYS = st.sampled_from(
    [
        *("2020-01-01", "2020-01-02", "9999-12-31", "0001-01-01"),
        *("1500-06-01T00:00:00.000000001", "2020-01-01 10:00", "x"),
    ]
)
PEOPLE = {"text": NUMBERS, "integer": NUMBERS, "float": NUMBERS, "date": DAYS, "datetime": DAYS}
VALUES = st.sampled_from(
    [
        *("9999-12-31", "1600-02-29", "2020-01-01"),
        *("2020-01-01 00:00:00.000000009", "?", "", "0001-01-01"),
    ]
)
CASES = [(kind, source) for kind in KEYS for source in ("csv", "parquet", "sqlite")]


def spec_in(folder: Path, kind: str, source: str, on_invalid: str) -> Path:
    attributes = {
        "person": {**KEYS[kind], "provenance": "form"},
        "day": {**KEYS["date"], "nullable": True, "provenance": "form"},
    }
    unit = {"key": "person", "max_rows": MOST}
    content = spec_of("visits", 100, attributes, unit=unit, method="independent")
    path = str(folder / f"rows.{source}")
    content |= {"source": {"path": path}, "validation": {"on_invalid": on_invalid}}
    if source == "sqlite":
        content["source"] = {"url": f"sqlite:///{folder}/rows.sqlite", "table": "rows"}
    path = folder / "spec.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write(rows: list[tuple[Any, str]], path: Path) -> None:
    """The rows in a file of the storage of its ending; persons keep their type if it has any."""
    if path.suffix == ".csv":
        path.write_text(
            "person,day\n" + "".join(f"{person},{day}\n" for person, day in rows), encoding="utf-8"
        )
    elif path.suffix == ".parquet":
        kind = pa.float64() if isinstance(rows[0][0], float) else pa.string()
        people = pa.array([person for person, _ in rows], kind)
        pq.write_table(pa.table({"person": people, "day": [day for _, day in rows]}), path)
    else:
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as server:
            server.execute("CREATE TABLE rows (person, day)")
            server.executemany("INSERT INTO rows VALUES (?, ?)", rows)
        server.close()


def opened(
    rows: list[tuple[Any, str]], folder: Path, kind: str, source: str, on_invalid: str
) -> Counter[tuple[int, ...]]:
    write(rows, folder / f"rows.{source}")
    order = resolve(ReleaseRequest(spec=spec_in(folder, kind, source, on_invalid)))
    home = Home.current({"CLOISTER_HOME": str(folder / "home")})
    database, _ = TablesSource().read_rows("r-1", order, home)
    (table,) = database.tables.values()
    return Counter(zip(*(codes.tolist() for codes in table.codes.values()), strict=True))


@pytest.mark.parametrize(("kind", "source"), few(CASES, 6))
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_person_more_moves_the_opened_table_by_at_most_their_rows(
    kind, source, data, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("opened")
    anchor = (1.0 if PEOPLE[kind] is NUMBERS else "2019-01-01", "2020-01-01")
    rows = [anchor, *data.draw(st.lists(st.tuples(PEOPLE[kind], VALUES), min_size=1, max_size=12))]
    more = data.draw(st.lists(VALUES, min_size=1, max_size=4))
    newcomer = data.draw(
        st.sampled_from([3.0, 3.5, 1e16]) if PEOPLE[kind] is NUMBERS else st.just("1600-01-02")
    )
    on_invalid = data.draw(st.sampled_from(["drop", "clip"]))
    longer = list(rows)
    for day in more:
        longer.insert(data.draw(st.integers(0, len(longer))), (newcomer, day))
    before, after = (opened(some, folder, kind, source, on_invalid) for some in (rows, longer))
    assert not before - after
    assert (after - before).total() <= min(MOST, len(more))


@pytest.mark.parametrize("stored", ["", "real", "numeric", "blob"])
@pytest.mark.parametrize("more", [1.5, "x", None, b"q", 10**17])
def test_hashes_of_raw_cells_do_not_depend_on_other_rows(tmp_path: Path, stored, more) -> None:
    """By them the rows of a person are chosen where no domain is known yet."""

    def first(rows: list[Any]) -> list[int]:
        path = tmp_path / f"{len(rows)}.db"
        with sqlite3.connect(path) as database:
            database.execute(f"CREATE TABLE t (a {stored})")
            database.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
        source = SourceSpec(url=f"sqlite:///{path}", table="t")
        spec = Spec.model_construct(source=source, attributes={"a": None}, ignore=())
        (hashes,) = cell_hashes(read_frame(spec, None))
        return hashes[:2].tolist()

    assert first([1, 2]) == first([1, 2, more])
