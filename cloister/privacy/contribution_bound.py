"""The bound on the rows of a person: the excess is left out before anything else is done.

Which rows of a person stay, and in which order, depends only on that person's name, on what its
rows hold, and on a secret key: not on the order of the source, and not on others. Adding or
removing a person changes no other's rows, so a table that differs by one person differs by at most
``max_rows`` rows afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from cloister.arrays import Array, Integers
from cloister.errors import DataError
from cloister.hashing import Words, keyed_numbers, keyed_rows
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.storage_types import texts
from cloister.schema.spec import PersonUnit


def require_named_persons(domain: Domain, unit: PersonUnit) -> None:
    """Check that every row has a person.

    Raises:
        DataError: the key may be missing: rows without one may belong to one person or to
            several.
    """
    if domain[unit.key].null_code is not None:
        raise DataError(
            f"column '{unit.key}' identifies persons but is nullable; declare it not nullable"
        )


def bound_contribution(table: Table, people: Integers, unit: PersonUnit, key: bytes) -> Table:
    """The table with at most ``unit.max_rows`` rows of each person, person by person.

    The order is the same for any order of the source. A text key then has one code for each name.

    Args:
        people: the number of each row's person, (rows,).
    """
    kept = rows_within_bound(people, table.stored.values(), unit.max_rows, key)
    return _grouped_by_name(table, people, unit.key).take(kept)


def _grouped_by_name(table: Table, people: Integers, key: str) -> Table:
    """The table with the number of its person (n,) as the code of each row, under a text key.

    Codes of keys outside the pattern are hashes that anyone can compute: somebody may have chosen
    two names of one code, and would be one person with twice the bound of rows.
    """
    column = table.domain[key]
    if column.kind != "key":
        return table
    without_overflow = people // 2
    return Table(table.domain, {**table.stored, key: column.size + without_overflow})


def person_numbers(names: pd.Series, key: bytes) -> Integers:
    """A number (n,) of the person of each row, which depends on the name and the key alone."""
    places, distinct = pd.factorize(texts(names))
    return keyed_numbers(pd.Index(distinct), key)[places]


def rows_within_bound(
    people: Integers, columns: Iterable[Array], most: int, key: bytes
) -> Integers:
    """Row numbers, person by person: of each those of the ``most`` smallest lots, in their order.

    The lot of a row is a keyed hash of its person, its cells in ``columns``, and its number among
    the person's rows of the same cells: equal rows, which are interchangeable, have lots of their
    own, so that each row of a person is as likely to stay as any other.
    """
    cells = keyed_rows((people, *columns), key + b"units")
    grouped = np.lexsort((cells, people))
    cells, owners = cells[grouped], people[grouped]
    lots = keyed_rows((cells, _position(cells)), key + b"lots")
    drawn = grouped[np.lexsort((lots, owners))]
    return drawn[_position(owners) < most]


def rows_first_in_line(parents: Integers, rows: Table, most: int, key: bytes) -> Integers:
    """Row numbers: of each parent's rows the ``most`` that come first, in an order by lot.

    The lot of a row follows from its own codes, and rows of equal codes keep their order: a row
    more takes the place of at most one other.
    """
    line = np.lexsort((keyed_rows(rows.stored.values(), key + b"links"), parents))
    return line[_position(parents[line]) < most]


def _position(grouped: Integers | Words) -> Integers:
    """The place of each row among equal ones, from 0, where these are beside each other."""
    if not len(grouped):
        return np.zeros(0, dtype=np.int64)
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]])
    sizes = np.diff(np.r_[starts, len(grouped)])
    return np.arange(len(grouped)) - np.repeat(starts, sizes)
