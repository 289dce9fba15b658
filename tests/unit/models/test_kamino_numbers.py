"""The examples of Kamino's paper, with its numbers."""

import numpy as np
import pytest
from declared_table import domain_of

from cloister.constraints import dependency, parse_denial
from cloister.constraints.counting import count_violations
from cloister.models.core.bins import bin_cells
from cloister.models.kamino.paper.recipes import completed_constraints
from cloister.models.planning import printed_sequence, schema_sequence
from cloister.models.sampling.row_by_row import Algorithm3, Penalty
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.violation_index import DIRECT, PairIndex
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Table
from cloister.schema.partition import declared_cells

EDUCATION = ["Bachelors", "HS-grad", "Some-college"]
DOMAIN = domain_of(
    age=Integer(type="integer", min=17, max=90),
    edu_num=Integer(type="integer", min=1, max=16),
    edu=Categorical(type="categorical", values=EDUCATION),
    cap_gain=Integer(type="integer", min=0, max=2_000_000, bins=20),
    cap_loss=Integer(type="integer", min=0, max=5_000, bins=20),
)
PHI_1 = dependency("phi_1", ["edu"], "edu_num")
PHI_2 = parse_denial("t1.cap_gain > t2.cap_gain and t1.cap_loss < t2.cap_loss", "phi_2", hard=False)
PHI_3 = parse_denial("t.age < 10 and t.cap_gain > 1000000", "phi_3")
SEQUENCE = ["age", "edu_num", "edu", "cap_gain", "cap_loss"]


def row(age, number, education, gain=0, loss=0):
    codes = (age - 17, number - 1, EDUCATION.index(education), gain, loss)
    return {name: np.array([code]) for name, code in zip(SEQUENCE, codes, strict=True)}


def test_examples_2_and_3_count_a_violation_of_each_kind_and_activate_phi_1_from_the_third_on():
    rows = [row(39, 13, "Bachelors", 10, 5), row(50, 14, "Bachelors", 20, 1)]
    table = Table(DOMAIN, {n: np.concatenate([r[n] for r in rows]) for n in SEQUENCE})
    assert [count_violations(rule, table) for rule in (PHI_1, PHI_2, PHI_3)] == [1, 1, 0]
    assert completed_constraints(SEQUENCE, [PHI_1, PHI_2, PHI_3]) == [[], [], [0], [2], [1]]


@pytest.mark.parametrize(("hard", "expected"), [(True, [1, 0, 0]), (False, [0.3, 0.3, 0.4])])
def test_figure_2_samples_bachelors_for_the_second_row(hard, expected):
    """Of 0.3, 0.3, 0.4 what violates with t1 has probability 0; without a weight nothing has."""
    index = PairIndex(DOMAIN, (Penalty(PHI_1, np.inf if hard else 0.0),))
    index.record(Table(DOMAIN, row(39, 14, "HS-grad")))
    index.record(Table(DOMAIN, row(39, 14, "Some-college")))
    index.record(Table(DOMAIN, row(39, 13, "Bachelors")))
    rng, chosen, trials = np.random.default_rng(1), np.zeros(3), 500
    candidates = [row(50, 13, education) for education in EDUCATION]
    table = Table(DOMAIN, {n: np.concatenate([c[n] for c in candidates]) for n in SEQUENCE})
    for _ in range(trials):
        choice = np.full(1, -1)
        logs = np.log(np.array([[0.3, 0.3, 0.4]]))
        index.choose(table, logs, np.arange(1), choice, DIRECT, rng)
        chosen[choice[0]] += 1
        index.record(Table(DOMAIN, candidates[choice[0]]), -1)
    # five deviations and a half of a share: fails by chance with less than 1e-7
    assert np.abs(chosen / trials - expected).max() < 5.5 * 0.5 / np.sqrt(trials)


class Figure2:
    """Everything is even, and edu is 0.3, 0.3, 0.4 whatever is before it."""

    def conditional(self, position, context):
        return np.array([[[0.5, 0.5], [0.3, 0.3, 0.4]][position]])


def test_example_4_rows_drawn_one_after_the_other_never_violate_phi_1():
    domain = domain_of(
        edu_num=Categorical(type="categorical", values=["13", "9"]),
        edu=Categorical(type="categorical", values=EDUCATION),
    )
    bins = {
        name: bin_cells(
            declared_cells(domain[name]), np.full(domain[name].size, 1 / domain[name].size), 0, True
        )
        for name in domain.names
    }
    sampler = ConstraintSampler(
        domain, ("edu_num", "edu"), bins, Figure2(), pair_rules=(PHI_1,), algorithm=Algorithm3()
    )
    for seed in range(20):
        assert count_violations(PHI_1, sampler.sample(60, SamplingSource(seed))) == 0


def test_the_sequence_of_the_paper_has_the_smallest_context():
    """Section 4.3: sizes 2, 3, 5 give contexts of 2 + 6 = 8 values, the reverse 5 + 15 = 20."""

    def context(sequence):
        sizes = [SIZES[name] for name in sequence]
        return sum(int(np.prod(sizes[:end])) for end in range(1, len(sizes)))

    assert context(schema_sequence(SIZES, ())) == 8
    assert context(("c", "b", "a")) == 20


SIZES = {"c": 5, "a": 2, "b": 3}


def test_algorithm_4_puts_left_sides_first_and_as_printed_sorts_by_their_smallest_attribute():
    sizes = {"zip": 40, "city": 30, "edu": 16, "edu_num": 15, "sex": 2, "age": 74}
    rules = [dependency("a", ["zip"], "city"), dependency("b", ["edu"], "edu_num")]
    expected = ("edu", "edu_num", "zip", "city", "sex", "age")
    assert schema_sequence(sizes, rules) == schema_sequence(sizes, rules[::-1]) == expected
    sizes = {"a": 2, "b": 90, "c": 30, "d": 5, "e": 7}
    rules = [dependency("wide", ["b", "a"], "d"), dependency("single", ["c"], "e")]
    assert printed_sequence(sizes, rules) == ("a", "b", "d", "c", "e")
    assert schema_sequence(sizes, rules) == ("c", "e", "a", "b", "d")


def test_known_weights_give_equation_1():
    """exp(-w v) for v violations: two rows of three violate once, at a cost of w."""
    table = Table(DOMAIN, row(39, 13, "Bachelors"))
    for weight in (0.5, 2.0):
        index = PairIndex(DOMAIN, (Penalty(PHI_1, weight),))
        index.record(table)
        rng, odd, trials = np.random.default_rng(2), 0, 300
        pair = Table(DOMAIN, {n: np.repeat(v, 2) for n, v in row(50, 13, "Bachelors").items()})
        pair.codes["edu_num"][1] = 13
        for _ in range(trials):
            choice = np.full(1, -1)
            index.choose(pair, np.zeros((1, 2)), np.arange(1), choice, DIRECT, rng)
            odd += int(choice[0])
            index.record(pair.take(choice), -1)
        expected = np.exp(-weight) / (1 + np.exp(-weight))
        assert abs(odd / trials - expected) < 5.5 * 0.5 / np.sqrt(trials)
