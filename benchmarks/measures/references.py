"""Reference answers in a benchmark: what conjunctions are compared with that comes of no table.

``no-cor`` multiplies the true means; ``lap`` adds Laplace noise to each answer. Both read the real
rows, as an evaluation does, and no ledger is charged: the table is declared public.

Source: Asghar et al., "Differentially Private Release of High-Dimensional Datasets using the
    Gaussian Copula" (arXiv 1902.01499), table 1 and sections 4.3.1 to 4.3.3.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np

from cloister.arrays import Floats
from cloister.benchmarks.config import NOISELESS, Combination
from cloister.benchmarks.measures.conjunctions import ConjunctionAnswers, RealRows, real_rows
from cloister.benchmarks.runs import Run, record_of
from cloister.errors import CloisterError
from cloister.privacy.accounting.accountants import epsilon_of_each
from cloister.privacy.mechanisms.noise import DiscreteLaplace
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.tasks.home.files import write_json
from cloister.tasks.home.home import Home


def finished_run(combination: Combination, bench_home: Home) -> Run | None:
    """The answers of a combination that were computed before by this code, if they were."""
    path = record_of(combination, bench_home, (combination.spec,))
    return Run.from_json(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def run(combination: Combination, bench_home: Home) -> Run:
    """Answer all queries of a combination, and measure the errors; an error is part of the result.

    Privacy: reads real rows, uncharged. The result is internal.
    """
    try:
        real = real_rows(combination.spec, combination.data)
        answers = (
            real.columns.independent_answers(real.answers)
            if combination.reference == NOISELESS
            else noisy_answers(real, combination.epsilon, combination.delta)
        )
    except CloisterError as error:
        return Run.of(combination, error=str(error))
    done = Run.of(combination, evaluation={"conjunctions": real.errors(answers)})
    write_json(record_of(combination, bench_home, (combination.spec,)), done.to_json())
    return done


def noisy_answers(real: RealRows, epsilon: Fraction, delta: Fraction) -> ConjunctionAnswers:
    """Each answer with Laplace noise of its own, none below zero.

    Advanced composition gives one epsilon to all one- and two-way tables of the attributes, as to
    those of the method, and another to all three-way tables, which are answered alone. The paper
    does not say that answers below zero become zero, but its errors are half as large where most
    answers are zero.

    Raises:
        PlanError: epsilon leaves less than a millionth for each table.
    """
    attributes = len(real.columns.cells)
    pairs = attributes + math.comb(attributes, 2)
    tables = (pairs, pairs, math.comb(attributes, 3))
    one, two, three = (
        _noisy(answers, number, real, epsilon, delta)
        for answers, number in zip(real.answers.ways, tables, strict=True)
    )
    return ConjunctionAnswers(real.answers.rows, (one, two, three))


def _noisy(
    answers: Floats, tables: int, real: RealRows, epsilon: Fraction, delta: Fraction
) -> Floats:
    if not len(answers):
        return answers
    mechanism = DiscreteLaplace(epsilon_of_each(epsilon, delta, tables))
    exact = np.rint(answers).astype(np.int64)
    noisy = mechanism.release(exact, real.neighbours.partition, NoiseSource())
    return np.maximum(noisy, 0).astype(np.float64)
