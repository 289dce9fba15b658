"""All measures of one synthetic table against the real one.

Privacy: computed from real rows without noise. An evaluation is internal; it never enters a
    published certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cloister.constraints.denial import DenialConstraint
from cloister.devices import CPU, Device
from cloister.evaluation import Level, Panel, attacks, learning
from cloister.evaluation.classifiers import DetectionScore, detect, detectable
from cloister.evaluation.marginals import compare_marginals, compare_queries, compare_trees
from cloister.evaluation.persons import PersonColumns, compare_persons
from cloister.evaluation.report import Evaluation, compare_violations, unmeasured_evaluation
from cloister.evaluation.targets import PredictionTarget
from cloister.evaluation.units import with_group_sizes
from cloister.schema.domain import Table

SAMPLED_ROWS = 100_000
"""Rows at most of a table out of core that measures of single rows are given: three times as many
as the one that takes most of them does, the learning of targets, which tests on 10,000 of 30 %."""

_SEED = 0
"""Seed of their choice, fixed so that an evaluation is repeatable."""


def evaluate_tables(
    real: Table,
    synthetic: Table,
    constraints: Sequence[DenialConstraint],
    targets: Sequence[PredictionTarget],
    level: Level,
    held_out: Table | None = None,
    panel: Panel = "nine",
    teach: learning.Teacher = learning.train_and_test,
    persons: PersonColumns | None = None,
    device: Device = CPU,
) -> Evaluation:
    """Measure a synthetic table against the real one.

    ``none`` measures nothing; ``quick`` marginals, range queries, violations, detection and closest
    records; ``full`` also trains a ``panel`` of models on synthetic and on real rows, and attacks
    membership if there are ``held_out`` real rows of the same population that took no part in the
    fit. ``persons`` says which rows belong to one person,
    or share a key that repeats, if any do. ``teach`` trains on the real
    rows, or returns scores that were computed before. Boosted trees are trained on the ``device``.

    Of a table out of core, marginals, queries, violations and copies are of all rows; what looks at
    single rows takes them from a fixed random choice by row number, whose size it says.

    Raises:
        DataError: the tables have other columns, or one has no rows.
        ConstraintError: a constraint does not fit the columns.

    Privacy: reads real rows without noise. The result is internal.
    """
    evaluation = unmeasured_evaluation(real, synthetic, level)
    if level == "none":
        return evaluation
    real_rows, synthetic_rows = at_hand(real), at_hand(synthetic)
    evaluation = replace(
        evaluation,
        marginals=compare_marginals(real, synthetic),
        trees=compare_trees(real, synthetic),
        queries=compare_queries(real, synthetic) if real.domain.modelled else None,
        violations=compare_violations(constraints, real, synthetic),
        detection=_detection(real, synthetic, persons, device),
        closest=attacks.closest_records(real_rows, synthetic_rows, real)
        if attacks.comparable_records(real, synthetic)
        else None,
        persons=compare_persons(real, synthetic, persons) if persons else None,
        sampled_rows=None if real.in_memory and synthetic.in_memory else SAMPLED_ROWS,
    )
    if level == "quick":
        return evaluation
    attackable = (
        held_out is not None
        and attacks.comparable_records(held_out, synthetic)
        and real.rows >= attacks.FEWEST_ATTACK_ROWS
    )
    membership = (
        attacks.infer_membership(real_rows, held_out, synthetic_rows)
        if attackable and held_out is not None
        else None
    )
    return replace(
        _with_learning(evaluation, real_rows, synthetic_rows, targets, panel, teach, device),
        membership=membership,
    )


def _detection(
    real: Table, synthetic: Table, columns: PersonColumns | None, device: Device
) -> DetectionScore | None:
    """How well real rows are told from synthetic ones; None if there are too few.

    By the sizes of groups in place of a key that repeats.
    """
    if not detectable(real, synthetic):
        return None
    rows = [at_hand(table) for table in (real, synthetic)]
    if columns is not None and columns.key in real.domain.modelled:
        most = max(real.rows, synthetic.rows)
        rows = [
            with_group_sizes(some, whole, columns.key, most)
            for some, whole in zip(rows, (real, synthetic), strict=True)
        ]
    return detect(rows[0], rows[1], device)


def at_hand(table: Table) -> Table:
    """The rows of a table in memory, or a fixed random choice of those of one that is not."""
    if table.in_memory:
        return table
    rng, number = np.random.default_rng(_SEED), min(SAMPLED_ROWS, table.rows)
    return table.take(np.sort(rng.choice(table.rows, number, replace=False)))


def _with_learning(
    evaluation: Evaluation,
    real: Table,
    synthetic: Table,
    targets: Sequence[PredictionTarget],
    panel: Panel,
    teach: learning.Teacher,
    device: Device,
) -> Evaluation:
    if not learning.learnable(real, synthetic, targets):
        return evaluation
    split = learning.TrainTestSplit.of(real)
    learnt = learning.synthetic_training_rows(synthetic)
    return replace(
        evaluation,
        learning=learning.train_and_test(learnt, split.test, targets, panel, device),
        truth=teach(split.train, split.test, targets, panel, device),
    )
