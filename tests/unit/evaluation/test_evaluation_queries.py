"""Range queries: public, repeatable and exact on small tables; the panel of twelve classifiers."""

import numpy as np
import pandas as pd
import pytest
from declared_table import domain_of

from cloister.evaluation.marginals import Range, answers, compare_queries, random_queries
from cloister.evaluation.targets import default_targets
from cloister.schema.attributes import Boolean, Categorical, Integer, TextKey


def late_imports():
    global CLASSIFIERS, PANELS, TWELVE, train_and_test
    from cloister.evaluation.learning import CLASSIFIERS, PANELS, TWELVE, train_and_test


DOMAIN = domain_of(
    id=TextKey(type="text", pattern="R{001..999}"),
    age=Integer(type="integer", min=0, max=99, nullable=True, special=[999]),
    town=Categorical(type="categorical", values=list("abcde")),
    member=Boolean(type="boolean"),
)


def table(rows, seed):
    rng = np.random.default_rng(seed)
    age = pd.Series(rng.integers(0, 100, rows), dtype="Int64").where(rng.random(rows) < 0.9)
    town = np.array(list("abcde"))[rng.integers(0, 5, rows)]
    ids = [f"R{number:03d}" for number in range(1, rows + 1)]
    return DOMAIN.encode(
        pd.DataFrame({"id": ids, "age": age, "town": town, "member": age.fillna(0) > 50})
    )


def test_queries_are_public_always_the_same_and_leave_keys_out():
    queries = random_queries(DOMAIN)
    assert queries == random_queries(DOMAIN) and len(queries) == 1_000
    assert {part.attribute for query in queries for part in query} == {"age", "town", "member"}
    assert all(len({part.attribute for part in query}) == 3 for query in queries)
    assert all(part.low <= part.high for query in queries for part in query)
    assert all(part.high <= 99 for query in queries for part in query if part.attribute == "age")


def test_an_answer_is_the_share_of_rows_inside_all_ranges():
    cells = {"id": "R001", "age": [10, 20, 999, None], "town": list("abca"), "member": True}
    rows = DOMAIN.encode(pd.DataFrame(cells))
    one, both = (Range("age", 5, 15),), (Range("age", 0, 99), Range("town", 1, 2))
    queries = [one, both, (Range("town", 0, 0),)]
    assert answers(rows, queries) == pytest.approx([0.25, 0.25, 0.5])


def test_a_table_against_itself_has_no_error_and_against_another_some():
    real = table(500, 1)
    assert compare_queries(real, real).mean_error == 0
    far = compare_queries(real, real.take(real.codes["town"] == 0))
    assert 0.01 < far.mean_error <= far.largest_error <= 1
    assert far.to_dict()["queries"] == 1_000


def test_a_panel_scores_every_classifier_of_its_own_and_the_nine_stay_the_default():
    assert len(CLASSIFIERS) == 9 and len(TWELVE) == 12
    assert {"GaussianNB", "LDA", "SVM", "HistGradientBoosting"} <= set(TWELVE)
    assert PANELS["nine"] is CLASSIFIERS
    targets = [target for target in default_targets(DOMAIN) if target.attribute == "member"]
    learning = train_and_test(table(300, 1), table(200, 2), targets, "twelve")
    assert set(learning.by_classifier()) == set(TWELVE)
    assert learning.accuracy > 0.8
