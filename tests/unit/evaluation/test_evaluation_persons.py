"""Persons of two tables: rows a person, attributes once a person, spread within them."""

import numpy as np
import pandas as pd
import pytest
from declared_table import domain_of

from cloister.evaluation.persons import PersonColumns, compare_persons
from cloister.schema.attributes import Categorical, Integer, TextKey


def late_imports():
    global evaluate_tables
    from cloister.evaluation.measures import evaluate_tables


DOMAIN = domain_of(
    person=TextKey(type="text", pattern="P{001..999}"),
    city=Categorical(type="categorical", values=["a", "b"]),
    ward=Categorical(type="categorical", values=["x", "y"]),
    cost=Integer(type="integer", min=0, max=99, nullable=True),
)
COLUMNS = PersonColumns("person", ("city",), most_rows=3)


def table_of(*rows):
    return DOMAIN.encode(pd.DataFrame(rows, columns=DOMAIN.names).astype({"cost": "Int64"}))


REAL = table_of(
    *(("P001", "a", "x", 10), ("P001", "a", "x", 20), ("P002", "b", "x", 30)),
    *(("P002", "b", "y", None), ("P003", "b", "y", 40)),
)
SYNTHETIC = table_of(("P007", "a", "x", 1), ("P007", "b", "y", 1), ("P008", "a", "x", 1))


def test_measures_are_those_computed_by_hand_and_in_the_report():
    measures = compare_persons(REAL, SYNTHETIC, COLUMNS)
    assert (measures.real, measures.synthetic, measures.several) == (3, 2, 1)
    assert (measures.broken, measures.real_broken) == (1, 0)
    assert measures.units.sizes == pytest.approx(abs(1 / 3 - 1 / 2))
    # wards of two rows xx 1/2, xy 1/4, yx 1/4, and xy 1/2, yx 1/2; costs are far apart
    assert [pair.half_l1 for pair in measures.units.siblings] == pytest.approx([1 / 2, 1])
    (across,) = measures.units.across
    assert {pair.attributes[1]: pair.half_l1 for pair in across.sets} == pytest.approx(
        {"ward": 4 / 15, "cost": 1}
    )
    assert [way.ways for way in measures.marginals] == [1]
    assert measures.marginals[0].half_l1 == pytest.approx(2 / 3)
    ward, cost = measures.spreads
    assert (ward.real, ward.synthetic) == (0.5, 1.0)
    assert cost.real == pytest.approx(np.sqrt(50) / np.std([10, 20, 30, 40]))
    assert cost.synthetic is None
    assert measures.metrics()["persons.spread_within.largest_difference"] == 0.5
    report = evaluate_tables(REAL, SYNTHETIC, (), (), "quick", persons=COLUMNS)
    assert report.to_dict()["persons"]["synthetic_with_broken_attributes"] == 1
    assert "persons.sizes.half_l1" in report.metrics()
    assert evaluate_tables(REAL, SYNTHETIC, (), (), "quick").persons is None
