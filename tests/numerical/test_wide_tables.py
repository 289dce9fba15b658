"""Tables of more pairs of attributes than can be listed."""

import numpy as np
import pandas as pd
import pytest
from panel import panel
from shape import Shape, release_once

from cloister.models.mixture.schedule import MOST_CANDIDATES

COLUMNS, GROUP, ROWS = 80, 4, 400


def groups_of_answers():
    """Answers in groups; each is that of its group, in four of five rows."""
    rng = np.random.default_rng(1)
    answers = np.repeat(rng.random((ROWS, COLUMNS // GROUP)) < 1 / 2, GROUP, axis=1)
    answers ^= rng.random((ROWS, COLUMNS)) < 1 / 5
    names = [f"q{at}" for at in range(COLUMNS)]
    declared = {"type": "boolean", "true": "yes", "false": "no", "provenance": "the form"}
    privacy = {
        "unit": "row",
        "relation": "add_remove",
        "rows": {"public": ROWS},
        "budget": {"epsilon": 100, "delta": "1e-6", "per": "ever"},
    }
    spec = {
        "name": "answers",
        "source": {"path": "answers.csv"},
        "privacy": privacy,
        "attributes": dict.fromkeys(names, declared),
        "release": {"method": "mixture", "epsilon": 50, "delta": "1e-6"},
    }
    return Shape(pd.DataFrame(np.where(answers, "yes", "no"), columns=names), spec)


def test_tables_are_chosen_among_all_pairs_where_these_cannot_be_listed(brief_training):
    trial = release_once(groups_of_answers(), 2, "mixture")
    assert trial.plan.parameters.pair_parts and trial.plan.parameters.rounds
    assert trial.synthetic.rows == ROWS


@pytest.mark.slow
def test_groups_of_many_columns_are_found_among_all_pairs():
    # noise is weak beside the rows at this epsilon
    trial = release_once(groups_of_answers(), 50, "mixture")
    names, parameters = trial.real.domain.names, trial.plan.parameters
    assert COLUMNS * (COLUMNS - 1) / 2 > MOST_CANDIDATES
    assert parameters.picks > 1 and parameters.rounds * parameters.picks >= 2 * COLUMNS
    real, drawn = (
        np.corrcoef([np.asarray(table.codes[name]) for name in names])
        for table in (trial.real, trial.synthetic)
    )
    traits = np.arange(COLUMNS) // GROUP
    same = np.triu(traits[:, None] == traits, 1)
    assert drawn[same].mean() > 0.6 * real[same].mean()


def pair_errors(trial):
    """The mean half L1 distance of tables of two columns, numbers in tens, of all pairs."""
    coded = [
        np.stack(
            [
                np.minimum(table.codes[column.name] // (1 + column.size // 16), 15)
                for column in table.domain
            ]
        )
        for table in (trial.real, trial.synthetic)
    ]
    pairs = zip(*np.triu_indices(len(coded[0]), 1), strict=True)
    tables = [
        [np.bincount(16 * codes[one] + codes[two], minlength=256) for codes in coded]
        for one, two in pairs
    ]
    return np.mean([np.abs(real - drawn).sum() / 2 for real, drawn in tables]) / trial.real.rows


def test_a_small_wide_table_is_no_worse_than_independent_columns():
    shape = panel(1_000, 30)
    mixture, alone = (release_once(shape, 0.3, method) for method in ("mixture", "independent"))
    assert not mixture.plan.parameters.rounds
    assert [stage.name for stage in mixture.plan.stages] == ["histograms"]
    assert pair_errors(mixture) < pair_errors(alone)
