"""Rules that hold in the data make no released table worse, and the forecast knows them."""

from dataclasses import replace

import numpy as np
import pytest
from questionnaire import blocks_in_a_block, boxes, many_blocks, one_block
from shape import release_once
from trials import marginal_errors

from cloister.constraints.counting import count_violations
from cloister.models.registry import create
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.tasks.requests.error_forecast import forecast_errors

SHAPES = {"block": one_block, "blocks": blocks_in_a_block, "survey": many_blocks, "boxes": boxes}


def without_rules(shape):
    return replace(shape, spec={**shape.spec, "constraints": []})


def errors(shape, epsilon, method, seeds):
    """The errors (releases, 2) of tables of one column and of two, and what was forecast of them.

    No released row breaks a rule.
    """
    found = []
    for seed in seeds:
        noise = NoiseSource.insecure(seed)
        trial = release_once(shape, epsilon, method, "1e-7", noise=noise)
        assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)
        found.append([marginal_errors(trial)[f"{ways}-way half L1"] for ways in (1, 2)])
    forecast = forecast_errors(trial.task, trial.plan)
    return np.array(found), forecast and np.array([forecast.one_way, forecast.two_way])


def test_twenty_rules_about_one_event_are_not_twenty_events():
    shape = one_block(1_500, 12)
    by_rules, forecast = errors(shape, 0.3, "mixture", (1, 2))
    alone, _ = errors(without_rules(shape), 0.3, "mixture", (1, 2))
    one, two = by_rules.mean(0) / alone.mean(0)
    assert one < 1
    assert two < 0.5
    assert (by_rules.mean(0) / forecast > 0.5).all()
    assert (by_rules.mean(0) / forecast < 2).all()


@pytest.mark.parametrize(
    "shape",
    [blocks_in_a_block(1_500, 2), pytest.param(boxes(1_500, 5), marks=pytest.mark.slow)],
    ids=["blocks", "boxes"],
)
def test_a_chain_of_conditionals_has_one_event_too(shape):
    by_rules, _ = errors(shape, 0.5, "kamino", (1,))
    alone, _ = errors(without_rules(shape), 0.5, "kamino", (1,))
    assert (by_rules.mean(0) < 1.1 * alone.mean(0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.2, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_table_is_worse_with_its_rules(shape, epsilon):
    """By no more than the standard error of the difference of three releases each."""
    made = SHAPES[shape]()
    by_rules, forecast = errors(made, epsilon, "mixture", (1, 2, 3))
    alone, _ = errors(without_rules(made), epsilon, "mixture", (1, 2, 3))
    deviation = np.sqrt((by_rules.var(0, ddof=1) + alone.var(0, ddof=1)) / 3)
    assert (by_rules.mean(0) <= alone.mean(0) + deviation).all()
    assert ((by_rules.mean(0) > forecast / 2) & (by_rules.mean(0) < 2 * forecast)).all()


@pytest.mark.parametrize(("method", "pooled"), [("kamino", True), ("kamino-paper", False)])
def test_a_certificate_says_that_histograms_of_one_event_are_pooled(method, pooled):
    """The printed method leaves them as they were counted."""
    trial = release_once(one_block(300, 3), 1, method, "1e-7")
    sentences = [line for line in trial.model.post_processing() if "the same event" in line]
    assert len(sentences) == pooled
    saved = create(method).restore(trial.task, *trial.model.state())
    assert saved.post_processing() == trial.model.post_processing()
    for name in trial.task.domain.modelled if pooled else ():
        assert name in sentences[0]
