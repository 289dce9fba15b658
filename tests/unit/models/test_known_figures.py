"""Weights and rates that are known of soft constraints: declared, planned without a query."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from cloister.constraints import KnownFigure, constraints_of, declaration_of, parse_denial
from cloister.errors import PlanError, SpecError
from cloister.models.planning import choose_sampling
from cloister.models.protocol import make_plan
from cloister.models.registry import METHODS, create
from cloister.models.task import Budget, RowSampling, Task
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.schema.spec_files.loading import load_spec, spec_digest

SPEC = """\
name: people
source: {path: people.csv}
privacy: {unit: row, relation: add_remove, rows: {public: 1000}, \
budget: {epsilon: 10, delta: 1e-6, per: year}}
attributes:
  age: {type: integer, min: 17, max: 90}
  pay: {type: integer, min: 0, max: 90}
constraints:
  - {name: rising, deny: "t1.age < t2.age and t1.pay > t2.pay", soft: SOFT}
release: {epsilon: 1, delta: 1e-7}
"""

DOMAIN = Domain.of(
    {name: Integer(type="integer", min=0, max=9) for name in ("age", "pay", "zone")}, Path()
)
RISING = parse_denial("t1.age < t2.age and t1.pay > t2.pay", "rising", hard=False)
ZONED = parse_denial("t1.zone = t2.zone and t1.pay != t2.pay", "zoned", hard=False)
RATED = replace(ZONED, known=KnownFigure(rate=0.1, provenance="audit of 2020"))
WEIGHTED = replace(ZONED, known=KnownFigure(weight=0.5))
BUDGET = Budget(Fraction(1), Fraction(1, 10**6))
WEIGHING = ["kamino", "kamino-sequential", "kamino-paper", "mixture", "bayes"]


def loaded(folder, soft):
    path = folder / "people.yaml"
    path.write_text(SPEC.replace("SOFT", soft))
    return load_spec(path)


def task_of(*rules, **changes):
    return Task(DOMAIN, rules, 5_000, Neighbours(), **changes)


@pytest.mark.parametrize(
    ("soft", "known"),
    [
        ("{weight: 2}", KnownFigure(weight=2.0)),
        ("{weight: 0.25}", KnownFigure(weight=0.25)),
        ("{rate: 1 %, provenance: audit}", KnownFigure(rate=0.01, provenance="audit")),
        ("{rate: 0.5%, provenance: audit}", KnownFigure(rate=0.005, provenance="audit")),
        ("{rate: 0.02, provenance: audit}", KnownFigure(rate=0.02, provenance="audit")),
        ("true", None),
    ],
)
def test_a_figure_is_read_and_written_as_declared(tmp_path, soft, known):
    spec = loaded(tmp_path, soft)
    (rule,) = constraints_of(spec.constraints, spec.attributes, tmp_path)
    assert (rule.hard, rule.known) == (False, known)
    assert constraints_of([declaration_of(rule)], spec.attributes, tmp_path) == (rule,)


def test_another_figure_is_another_spec(tmp_path):
    digests = {spec_digest(loaded(tmp_path, f"{{weight: {w}}}")) for w in (1, 2)}
    assert len(digests | {spec_digest(loaded(tmp_path, "true"))}) == 3


@pytest.mark.parametrize(
    "soft",
    [
        "{weight: many}",
        "{weight: -1}",
        "{weight: .inf}",
        "{weight: true}",
        "{rate: 1 %}",
        "{rate: 0, provenance: audit}",
        "{rate: 101 %, provenance: audit}",
        "{rate: x %, provenance: audit}",
        "{rate: 1 %, provenance: data-derived}",
        "{weight: 1, rate: 1 %, provenance: audit}",
        "{}",
        "maybe",
    ],
)
def test_a_figure_that_is_none_is_an_error_with_its_line(tmp_path, soft):
    with pytest.raises(SpecError) as caught:
        loaded(tmp_path, soft)
    assert "line 8" in str(caught.value)
    assert "{rate: 1 %, provenance: SOURCE}" in str(caught.value)


@pytest.mark.parametrize("method", WEIGHING)
def test_nothing_is_asked_of_the_data_for_a_known_rate(method):
    """Of several only the unknown are asked."""
    known, none, both, alone = (
        make_plan(create(method), task_of(*rules), BUDGET)
        for rules in ((RATED,), (), (RISING, RATED), (RISING,))
    )
    assert known.event == none.event
    assert known.rate_deviation is None
    assert both.event == alone.event
    for plan, asked in ((known, False), (both, True)):
        assert ("soft constraints" in {stage.name for stage in plan.stages}) is asked


def test_a_known_weight_draws_rows_one_after_the_other_and_options_need_an_effect():
    ways = ("supports", "sequential")
    choice = choose_sampling(task_of(WEIGHTED), ways)
    assert choice.sequential
    assert "'zoned' has a known weight" in str(choice)
    for rules, sampling, problem in (
        ((WEIGHTED,), RowSampling("supports"), "'zoned' has a known weight"),
        ((), RowSampling("sequential"), "none can act"),
        ((RISING,), RowSampling(resampled=0.5), "are options of sampling: sequential"),
        ((RISING,), RowSampling(tries=30), "are options of sampling: sequential"),
    ):
        with pytest.raises(PlanError, match=problem):
            choose_sampling(task_of(*rules, sampling=sampling), ways)


@pytest.mark.parametrize("method", ["dpview", "copula", "independent", "bayes", "deniability"])
def test_methods_that_cannot_draw_rows_one_after_the_other_refuse(method):
    for task in (task_of(WEIGHTED), task_of(RISING, sampling=RowSampling("sequential"))):
        with pytest.raises(PlanError, match="draws rows inside feasible sets; use another method"):
            make_plan(create(method), task, BUDGET)


def test_every_method_of_one_table_draws_inside_supports_or_says_why_not():
    for name in METHODS:
        method = create(name)
        if not method.of_database and name != "kamino-paper":
            assert method.samplings[0] == "supports"
            assert not choose_sampling(task_of(RISING), method.samplings).sequential
    assert choose_sampling(task_of(RISING), create("kamino-paper").samplings).sequential


def test_rows_one_after_the_other_are_forecast_to_take_longer():
    def seconds(**options):
        task = task_of(RISING, sampling=RowSampling(**options))
        return make_plan(
            create("kamino"), replace(task, wanted_rows=10**6), BUDGET
        ).forecast.seconds

    assert seconds() < seconds(way="sequential") < seconds(way="sequential", resampled=1.0)
