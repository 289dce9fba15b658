"""How often intervals of answers hold the true figure, of the population and of the table."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from claims import claims
from interviews import interviews
from shape import Trial, release_once

from cloister.models.answers.answer import answer_question
from cloister.models.answers.figures import Estimate
from cloister.models.answers.question import parse_question
from cloister.models.protocol import counted_rows
from cloister.privacy.mechanisms.randomness import NoiseSource

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(14_400)]  # seconds
RELEASES = 200
EPSILON = 1
POPULATION = 400_000
LEAST_HELD, LEAST_TOLD = 0.89, 100
"""Least share of intervals that hold the figure, of so many: of 200, 0.93 is off by 0.018."""
SHAPES = {"interviews": (interviews, 1_500), "claims": (claims, 2_000)}
"""Each release is of a new sample; the method was made on interviews, and judged on claims."""

Figure = Callable[[pd.DataFrame, pd.DataFrame, str], float]
"""The true figure of a group of rows, all rows, and the term of a regression that it is of."""


def mean(column: str) -> Figure:
    return lambda group, *_: group[column].astype(float).mean()


def median(column: str) -> Figure:
    return lambda group, *_: group[column].median()


def share(column: str, condition: Callable) -> Figure:
    return lambda group, *_: condition(group[column]).mean()


def number(rows: int, condition: Callable = lambda group: [True] * len(group)) -> Figure:
    """Rows of a table of so many that are in a group, and fulfil a condition."""
    return lambda group, whole, _: rows * np.sum(condition(group)) / len(whole)


def part(group: pd.DataFrame, whole: pd.DataFrame, _: str) -> float:
    return len(group) / len(whole)


def design(group: pd.DataFrame, term: str) -> np.ndarray:
    """Ones, and the column that a term names, or where it has the value that it names."""
    name, equals, value = term.partition(" = ")
    explaining = group[name] == value if equals else group[name]
    return np.stack([np.ones(len(group)), explaining.astype(float)], axis=1)


def slope(column: str) -> Figure:
    """The coefficient of the one term of a linear regression."""

    def figure(group, _, term):
        answer = group[column].astype(float)
        return float(np.linalg.lstsq(design(group, term), answer, rcond=None)[0][-1])

    return figure


def log_odds(column: str, condition: Callable) -> Figure:
    """The coefficient of the one term of a logistic regression, by Newton's steps."""

    def figure(group, _, term):
        rows, answer = design(group, term), condition(group[column]).to_numpy(float)
        scale = np.array([1.0, max(rows[:, 1].std(), 1e-9)])
        rows, fit = rows / scale, np.zeros(2)
        for _ in range(30):
            chance = 1 / (1 + np.exp(-rows @ fit))
            information = (rows.T * (chance * (1 - chance))) @ rows
            fit = fit + np.linalg.solve(information, rows.T @ (answer - chance))
        return float(fit[1] / scale[1])

    return figure


def smoking(smokes):
    return smokes == "yes"


QUESTIONS: Mapping[str, Mapping[str, Figure]] = {
    "interviews": {
        "count()": number(1_500),
        "count() by sex": number(1_500),
        "count() by `home region`": number(1_500),
        "count() by age": number(1_500),
        "count() where smokes = 'yes'": number(1_500, lambda g: g["smokes"] == "yes"),
        "count() where age >= 65 and sex = F": number(
            1_500, lambda g: (g["age"] >= 65) & (g["sex"] == "F")
        ),
        "table(`home region`)": part,
        "table(sex, smokes)": part,
        "table(age, income)": part,
        "share(smokes = 'yes') by sex": share("smokes", smoking),
        "share(age >= 65)": share("age", lambda c: c >= 65),
        "share(income >= 60) by sex": share("income", lambda c: c >= 60),
        "mean(age)": mean("age"),
        "mean(hours)": mean("hours"),
        "mean(income)": mean("income"),
        "mean(age) by sex": mean("age"),
        "mean(hours) by sex": mean("hours"),
        "mean(income) by `home region`": mean("income"),
        "median(age)": median("age"),
        "median(income)": median("income"),
        "linear(hours ~ sex)": slope("hours"),
        "linear(income ~ sex)": slope("income"),
        "linear(age ~ smokes)": slope("age"),
        "linear(income ~ hours)": slope("income"),
        "logistic(smokes = 'yes' ~ sex)": log_odds("smokes", smoking),
        "logistic(smokes = 'yes' ~ age)": log_odds("smokes", smoking),
        "logistic(income >= 60 ~ sex)": log_odds("income", lambda c: c >= 60),
        "logistic(income >= 60 ~ hours)": log_odds("income", lambda c: c >= 60),
    },
    "claims": {
        "count() by region": number(2_000),
        "count() where kind = open and line = car": number(
            2_000, lambda g: (g["kind"] == "open") & (g["line"] == "car")
        ),
        "count() where claimed >= 1000": number(2_000, lambda g: g["claimed"] >= 1000),
        "table(region)": part,
        "table(kind, line)": part,
        "table(age)": part,
        "table(line, claimed)": part,
        "share(kind = 'open') by line": share("kind", lambda c: c == "open"),
        "share(claimed >= 1000)": share("claimed", lambda c: c >= 1000),
        "share(claimed >= 1000) by line": share("claimed", lambda c: c >= 1000),
        "mean(age)": mean("age"),
        "mean(claimed)": mean("claimed"),
        "mean(claimed) by line": mean("claimed"),
        "mean(claimed) by region": mean("claimed"),
        "mean(age) by kind": mean("age"),
        "median(claimed)": median("claimed"),
        "median(claimed) by line": median("claimed"),
        "linear(claimed ~ age)": slope("claimed"),
        "logistic(kind = 'open' ~ age)": log_odds("kind", lambda c: c == "open"),
        "logistic(claimed >= 1000 ~ age)": log_odds("claimed", lambda c: c >= 1000),
    },
}


@pytest.mark.parametrize("name", SHAPES)
def test_intervals_hold_the_true_figure(record, name):
    make, rows = SHAPES[name]
    trials = (
        release_once(
            make(rows, seed), EPSILON, method="mixture", noise=NoiseSource.insecure(10_000 + seed)
        )
        for seed in range(RELEASES)
    )
    held = outcomes(name, trials)
    lines = coverage(held)
    headings = ("question", "from", "intervals", "without", "population", "table", "mean width")
    title = f"95 % intervals that hold the true figure, {RELEASES} releases of {name}, {rows} rows"
    record(f"answers-{name}", title, headings, lines)
    for (text, source), intervals in held.items():
        told = [each[:2] for each in intervals if None not in each]
        assert len(told) < LEAST_TOLD or np.min(np.mean(told, axis=0)) > LEAST_HELD, (text, source)


Outcomes = dict[tuple[str, str], list[tuple]]
"""By question and source: whether intervals hold the figures, and how wide they are."""


def outcomes(name: str, trials: Iterable[Trial]) -> Outcomes:
    """What the intervals of releases hold; those of parts of the seeds may be put together."""
    whole = SHAPES[name][0](POPULATION, 987_654).frame
    of_population = {text: cache(partial(_true, whole, of)) for text, of in QUESTIONS[name].items()}
    held: Outcomes = defaultdict(list)
    for trial in trials:
        table = trial.real.frame()
        for text, figure in QUESTIONS[name].items():
            question = parse_question(text, trial.task.domain)
            truths = (of_population[text], partial(_true, table, figure))
            answers = [
                answer_question(question, counted_rows(trial.model, trial.task), of)
                for of in ("population", "table")
            ]
            drawn = "drawn" in answers[0].basis and "corrected" not in answers[0].basis
            for pair in zip(*(answer.estimates for answer in answers), strict=True):
                held[text, "model" if drawn else "counts"].append(tuple(_held(pair, truths)))
    return held


def coverage(held: Outcomes) -> list[tuple[str, ...]]:
    """A line for each question and source: how often intervals hold the true figure."""
    return [(text, source, *_line(found)) for (text, source), found in sorted(held.items())]


def _held(pair: tuple[Estimate, ...], truths: tuple[Callable, ...]) -> Iterator:
    """Whether each of two intervals holds its figure, and the width of the first; None if none."""
    for estimate, true in zip(pair, truths, strict=True):
        missing = estimate.low is None or estimate.high is None
        group = tuple(estimate.group.items())
        yield None if missing else estimate.low <= true(group) <= estimate.high
    yield None if missing else pair[0].high - pair[0].low


def _true(frame: pd.DataFrame, figure: Figure, names: tuple[tuple[str, str], ...]) -> float:
    """The figure of a group of a frame, by the names of its values, or of the term."""
    group, term = frame, dict(names).get("coefficient", "")
    for column, words in names if not term else ():
        group = group[inside(group[column], words)]
    return figure(group, frame, term)


def inside(column: pd.Series, words: str) -> pd.Series:
    """The rows of a group."""
    if words == "missing":
        return column.isna()
    if " to " in words:
        low, high = map(float, words.split(" to "))
        return (column >= low) & (column <= high)
    return column.astype(str) == words


def _line(outcomes: list[tuple]) -> tuple[str, ...]:
    told = [outcome for outcome in outcomes if None not in outcome]
    population, table, width = (np.mean(values) for values in zip(*told, strict=True))
    without = 1 - len(told) / len(outcomes)
    return (f"{len(told)}", f"{without:.0%}", f"{population:.1%}", f"{table:.1%}", f"{width:.3g}")
