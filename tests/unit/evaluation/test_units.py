"""Units as rows: a person's rows, or a row with those that refer to it, by number and ends."""

from pathlib import Path

import numpy as np
import pandas as pd

from cloister.evaluation.units import part_of_units, rows_of_units, with_persons
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Domain
from cloister.schema.relations import Database, ForeignKey, Schema

KEY = TextKey(type="text", pattern="P{01..99}")
KIND = Categorical(type="categorical", values=["a", "b", "c"])
NUMBER = Integer(type="integer", min=0, max=9, nullable=True)


def domain(**attributes):
    return Domain.of(attributes, Path())


def encoded(columns, rows):
    return columns.encode(pd.DataFrame(rows, columns=columns.names))


VISITS = domain(person=KEY, kind=KIND, number=NUMBER)
ROWS = [("P07", "a", 3), ("P02", "c", None), ("P07", "c", 1), ("P07", "b", 3)]


def persons():
    schema = Schema({"visits": VISITS})
    return with_persons(Database(schema, {"visits": encoded(VISITS, ROWS)}), "person", 3)


def test_a_person_is_known_by_its_number_of_rows_and_their_ends_and_taken_with_them():
    frame = rows_of_units(persons()).frame()
    assert list(frame) == [
        "visits of person: rows",
        *(f"visits of person: {end} kind" for end in ("least", "greatest")),
        *(f"visits of person: {end} number" for end in ("least", "greatest")),
    ]
    assert frame.astype(object).where(frame.notna(), None).to_numpy().tolist() == [
        [1, "c", "c", None, None],
        [3, "a", "c", 1, 3],
    ]
    part = part_of_units(persons(), np.array([False, True])).tables["visits"]
    assert part.frame()["number"].tolist() == [3, 1, 3]
    assert part.frame()["person"].unique().tolist() == ["P07"]


def tables():
    """Houses, persons in them, and their visits, of rooms that belong to nobody."""
    domains = {
        "houses": domain(house=KEY, kind=KIND),
        "rooms": domain(room=KEY, kind=KIND),
        "persons": domain(person=KEY, house=KEY, number=NUMBER),
        "visits": domain(person=KEY, room=KEY, kind=KIND),
    }
    keys = (
        ForeignKey("persons", "house", "houses", "house", 2),
        ForeignKey("visits", "person", "persons", "person", 2),
        ForeignKey("visits", "room", "rooms", "room", 9),
    )
    rows = {
        "houses": [("P01", "a"), ("P02", "b"), ("P03", "c")],
        "rooms": [("P08", "a"), ("P09", "b")],
        "persons": [("P11", "P01", 1), ("P12", "P02", 2), ("P13", "P01", 5)],
        "visits": [("P13", "P08", "b"), ("P12", "P09", "c"), ("P13", "P09", "c")],
    }
    schema = Schema(domains, keys, ("houses",))
    return Database(schema, {name: encoded(domains[name], rows[name]) for name in domains})


def test_a_row_is_known_with_all_that_refer_to_it_and_through_others():
    frame = rows_of_units(tables()).frame()
    of_person, of_visit = "persons of house: ", "visits of person: "
    assert frame["kind"].tolist() == ["a", "b", "c"]
    assert frame[f"{of_person}rows"].tolist() == [2, 1, 0]
    assert frame[f"{of_person}greatest number"].fillna(-1).tolist() == [5, 2, -1]
    assert frame[f"{of_person}least {of_visit}rows"].fillna(-1).tolist() == [0, 1, -1]
    assert frame[f"{of_person}greatest {of_visit}rows"].fillna(-1).tolist() == [2, 1, -1]
    ends = frame[f"{of_person}least {of_visit}greatest kind"].astype(object)
    assert ends.where(ends.notna(), None).tolist() == ["c", "c", None]


def test_what_belongs_to_no_unit_stays():
    part = part_of_units(tables(), np.array([True, False, True]))
    assert part.rows == {"houses": 2, "rooms": 2, "persons": 2, "visits": 2}
    assert part.tables["visits"].frame()["person"].tolist() == ["P13", "P13"]
    assert not any(rows for _, rows in part.dangling())
