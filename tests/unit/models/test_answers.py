"""Answers from released counts: exact without noise, honest with it, none where there is none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from claims import claims
from interviews import interviews
from shape import Shape, release_once

from cloister.errors import InputError
from cloister.models.answers.answer import Answer, answer_question
from cloister.models.answers.evidence import joint_counts
from cloister.models.answers.figures import Estimate
from cloister.models.answers.groups import cut_slices, mean_weights, replicates_of
from cloister.models.answers.question import Question, parse_question
from cloister.models.protocol import counted_rows, counts_of
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain

ROWS = 400


@pytest.fixture(scope="module")
def brief_fit():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloister.models.mixture.fit.LAST_STEPS", 60)
        patch.setattr("cloister.models.mixture.schedule.MOST_STEPS", 20)
        yield


@pytest.fixture(scope="module")
def trial(brief_fit):
    """A release with next to no noise."""
    return release_once(interviews(ROWS), 200, method="mixture", noise=NoiseSource.insecure(2))


@pytest.fixture(scope="module")
def real(trial) -> pd.DataFrame:
    return trial.real.frame()


@pytest.fixture(scope="module")
def ask(trial):
    def answered(text, estimand="table", confidence=0.95):
        question = parse_question(text, trial.task.domain)
        return answer_question(
            question, counted_rows(trial.model, trial.task), estimand, confidence
        )

    return answered


def only(answer):
    (estimate,) = answer.estimates
    return estimate


def test_without_noise_figures_are_those_of_the_rows(ask, real):
    women = real[real["sex"] == "F"]
    assert only(ask("count()")).value == pytest.approx(ROWS, abs=1)
    assert only(ask("count() where age >= 40 and age < 65")).value == pytest.approx(
        real["age"].between(40, 64).sum(), abs=1
    )
    assert only(ask("mean(age)")).value == pytest.approx(real["age"].mean(), abs=0.1)
    assert only(ask("median(age)")).value == pytest.approx(real["age"].median(), abs=1)
    assert only(ask("quantile(hours, 0.9)")).value == pytest.approx(
        real["hours"].quantile(0.9), abs=1
    )
    smoking = ask("share(smokes = 'yes') by sex")
    by_sex = {each.group["sex"]: each.value for each in smoking.estimates}
    assert by_sex["F"] == pytest.approx((women["smokes"] == "yes").mean(), abs=0.01)
    cells = ask("table(sex, smokes)").estimates
    assert sum(each.value for each in cells) == pytest.approx(1, abs=0.01)


def test_all_rows_are_as_many_as_the_release_has_and_have_a_share_of_one(ask):
    for of in ("table", "population"):
        count = only(ask("count()", of))
        assert (count.low, count.value, count.high) == (ROWS, ROWS, ROWS)
        share = only(ask("share(sex in (F, M))", of))
        assert share.low <= share.value <= share.high
        assert share.high == pytest.approx(1, abs=1e-9)
    # columns that were counted together add no variance of the model
    assert [each.model for each in ask("share(smokes = 'yes') by sex").estimates] == [0.0, 0.0]


def test_times_of_day_are_written_as_the_file_has_them():
    since = Integer(type="integer", min=0, max=1439, bins=8, format="%H:%M")
    column = Domain.of({"since": since}, Path())["since"]
    answer = Answer(
        Question("mean(since)", "mean", (column,)),
        "table",
        0.95,
        (Estimate({}, 716.1, 699.5, 1439.0, noise=5.5), Estimate({}, None, None, None)),
        0.0,
        "the noisy counts of since",
    )
    first, second = answer.records()
    assert [first[end] for end in ("estimate", "low", "high")] == ["11:56", "11:40", "23:59"]
    assert (first["noise"], second["estimate"]) == (5.5, None)


def test_means_by_groups_hold_what_lies_inside_bins(ask, real):
    means = real.groupby("sex")["income"].mean()
    for each in ask("mean(income) by sex").estimates:
        assert each.low <= means[each.group["sex"]] <= each.high
        assert each.high - each.low < 12


def test_the_population_has_wider_intervals_than_the_table(ask):
    for text in ("share(sex = 'F')", "mean(age)", "median(age)", "count() where sex = 'F'"):
        table, population = only(ask(text)), only(ask(text, "population"))
        assert population.high - population.low > 2 * (table.high - table.low)
    wide = only(ask("mean(age)", "population", 0.99))
    assert wide.high - wide.low > only(ask("mean(age)", "population")).high - wide.low - wide.low


def test_the_noise_of_a_histogram_moves_counts_as_their_covariance_says(trial):
    released = replace(counts_of(trial.model), tables=())
    question = parse_question("mean(hours)", trial.task.domain)
    slices = {"hours": cut_slices(released.bins["hours"], question)}
    joint = joint_counts(released, ["hours"], slices, replicates_of(released, ["hours"], slices))
    numbers = {"hours": mean_weights(slices["hours"])[0].mean}
    sampled = np.var(joint.moved("hours") @ joint.over_cells(numbers))
    assert 0.4 < sampled / joint.noise(numbers, numbers) < 2  # of 25 samples


def test_odd_names_ranges_orders_of_clauses_and_comparisons_joined_by_or(ask, real):
    regions = ask("share(sex = 'F') by `home region` where age >= 30")
    assert [each.group["home region"] for each in regions.estimates][-1] == "islands"
    groups = [each.group["age"] for each in ask("count() by age").estimates]
    assert len(groups) == 8
    assert groups[0].startswith("18 to ")
    outside = ask("count() where age < 30 or age >= 70")
    assert only(outside).value == pytest.approx((~real["age"].between(30, 69)).sum(), abs=2)
    sides = ask("share(`home region` = 'north' or `home region` = 'south') by sex")
    north = real["home region"].isin(["north", "south"]).groupby(real["sex"]).mean()
    for each in sides.estimates:
        assert each.value == pytest.approx(north[each.group["sex"]], abs=0.01)


@pytest.mark.parametrize(
    ("condition", "query"),
    [
        ("age in 30..49", "30 <= age <= 49"),
        ("age not in 30..49", "age < 30 or age > 49"),
        ("not age in 30 .. 49 and sex = F", "(age < 30 or age > 49) and sex == 'F'"),
        ("65 <= age", "age >= 65"),
        ("not sex = F", "sex != 'F'"),
        ("not sex not in (F)", "sex == 'F'"),
        ("NOT age >= 65 AND smokes = 'yes'", "age < 65 and smokes == 'yes'"),
        ("`home region` in (north, 'east')", "region in ('north', 'east')"),
        ("`home region` not in (north,east)", "region not in ('north', 'east')"),
        ("age in 18..29 or age in 70..90", "age < 30 or age >= 70"),
        ("age in (20, 21, 22) or not age < 60", "age in (20, 21, 22) or age >= 60"),
        (
            "income in 20.5..60 and age > 30 and age <= 50",
            "20.5 <= income <= 60 and 30 < age <= 50",
        ),
    ],
)
def test_conditions_say_in_and_not(ask, real, condition, query):
    rows = real.rename(columns={"home region": "region"}).query(query)
    assert only(ask(f"count() where {condition}")).value == pytest.approx(len(rows), abs=20)
    assert only(ask(f"share({condition})")).value == pytest.approx(len(rows) / ROWS, abs=0.05)


@pytest.fixture(scope="module")
def amounts(brief_fit):
    """A release with next to no noise, of amounts in cells of many values, and its rows."""
    shape = claims(ROWS)
    shown = {name: shape.spec["attributes"][name] for name in ("kind", "paid")}
    shape = Shape(shape.frame[list(shown)], {**shape.spec, "attributes": shown, "constraints": []})
    release = release_once(shape, 200, method="mixture", noise=NoiseSource.insecure(2))
    rows = release.real.frame()
    return release, rows.assign(paid=rows["paid"].astype(float))


def answered(release, text, estimand="table"):
    question = parse_question(text, release.task.domain)
    return answer_question(question, counted_rows(release.model, release.task), estimand)


def test_a_missing_value_fulfils_no_clause_but_that_it_is_missing(amounts):
    release, rows = amounts
    paid = rows["paid"]
    wanted = {
        "paid is missing": paid.isna(),
        "not paid is missing": paid.notna(),
        "paid >= 469": paid >= 469,
        "not paid >= 469": paid < 469,
    }
    for condition, fulfilled in wanted.items():
        estimate = only(answered(release, f"count() where {condition}"))
        assert estimate.value == pytest.approx(fulfilled.sum(), abs=12)


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("count() where not paid in (0)", lambda paid: (paid > 0).sum()),
        ("count() where paid = 0", lambda paid: (paid == 0).sum()),
        ("count() where paid <= 100", lambda paid: (paid <= 100).sum()),
        ("share(paid > 0)", lambda paid: (paid > 0).mean()),
        ("mean(paid) where paid > 0", lambda paid: paid[paid > 0].mean()),
        ("median(paid) where paid > 0", lambda paid: paid[paid > 0].median()),
    ],
)
def test_a_condition_that_cuts_a_cell_has_an_interval_of_all_it_may_hold(amounts, text, figure):
    release, rows = amounts
    estimate = only(answered(release, text))
    assert estimate.low <= figure(rows["paid"]) <= estimate.high
    assert "cuts cells of paid" in estimate.remark
    assert estimate.model > estimate.sampling


def test_a_cell_that_is_cut_may_hold_all_of_a_group_or_none(amounts):
    release, rows = amounts
    by_kind = answered(release, "share(paid = 0) by kind").estimates
    for each in by_kind:
        of_kind = rows.loc[rows["kind"] == each.group["kind"], "paid"]
        assert each.low <= (of_kind == 0).mean() <= each.high
    whole = only(answered(release, "mean(paid) where paid = 0"))
    assert whole.value is None
    assert "there may be no such rows" in whole.remark


def test_where_no_cell_is_cut_nothing_is_added(amounts):
    release, rows = amounts
    (cells,) = counts_of(release.model).histograms["paid"].cells.partitions
    estimate = only(answered(release, f"count() where paid >= {cells.starts[cells.cells // 2]}"))
    assert estimate.model == 0
    assert not estimate.remark
    mean = only(answered(release, "mean(paid)"))
    assert mean.low <= rows["paid"].mean() <= mean.high
    assert 0 < mean.model < mean.noise  # rows may lie together in a cell, but not all at one end


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot read"),
        ("average(age)", "cannot read"),
        ("mean(age) for sex", "cannot read"),
        ("mean(agee)", "no column 'agee'; use one of age"),
        ("mean(sex)", "'sex' holds no numbers"),
        ("mean(age, hours)", "1 columns, not 2"),
        ("quantile(age, 90)", "between 0 and 1"),
        ("quantile()", "between 0 and 1"),
        (f"quantile(age, {'9' * 400})", "between 0 and 1"),
        (f"count() where age in {'9' * 400}..3", "runs backwards"),
        ("share(sex = 'X')", "'sex' has no value 'X'; use one of F, M"),
        ("share(sex)", "condition 'sex'"),
        ("share(sex in (F, X))", "'sex' has no value 'X'"),
        ("count() where age in 49..30", "runs backwards; write such as age in 18..90"),
        ("count() where age in old..older", "'age'.*of type integer; write such as age in"),
        ("count() where age in ()", "cannot read the condition"),
        ("count() where sex in F..M", "no order; write such as sex in \\(F, M\\)"),
        ("count() where not (sex = F)", "cannot read the condition"),
        ("count() where home region = north", "odd names in backquotes"),
        ("count() where age is missing", "'age' is missing, but it never is"),
        ("count() where age > hours", "compares two columns"),
        ("count() where age > 30 or sex = 'F'", "joins age and sex by or"),
        ("count() where age > 30 or age < 20 and sex = 'F'", "and others by and"),
        ("linear(age)", "write linear"),
        ("linear(age ~ hours) by sex", "without by"),
        ("linear(age ~ age)", "names a column twice"),
        ("logistic(sex ~ age)", "condition"),
        ("mean(age) by region", "no column 'region'; use one of home region"),
    ],
)
def test_a_question_that_cannot_be_read_says_why(ask, text, said):
    with pytest.raises(InputError, match=said):
        ask(text)


def test_coefficients_are_those_of_the_rows(ask, real):
    women = (real["sex"] == "F").astype(float)
    ages = real["age"].astype(float)
    (sex,) = ask("linear(hours ~ sex)").estimates
    by_sex = real.groupby("sex")["hours"].mean()
    sign = 1 if sex.group["coefficient"] == "sex = M" else -1
    assert sex.value == pytest.approx(sign * (by_sex["M"] - by_sex["F"]), abs=0.5)
    (age,) = ask("logistic(smokes = 'yes' ~ age)").estimates
    smokes = (real["smokes"] == "yes").to_numpy(float)
    assert age.value == pytest.approx(logistic_slope(ages.to_numpy(), smokes), abs=0.01)
    assert age.low < age.value < age.high
    both = ask("linear(income ~ age + sex)", "population").estimates
    truth = np.linalg.lstsq(np.stack([np.ones(ROWS), ages, women], 1), real["income"], rcond=None)
    assert both[0].low < truth[0][1] < both[0].high


def logistic_slope(numbers, answers):
    design, slopes = np.stack([np.ones(len(numbers)), numbers - 40], 1), np.zeros(2)
    for _ in range(30):
        chance = 1 / (1 + np.exp(-design @ slopes))
        weights = design.T * (chance * (1 - chance))
        slopes += np.linalg.solve(weights @ design, design.T @ (answers - chance))
    return slopes[1]


def test_what_was_never_counted_together_is_said_and_has_wide_intervals():
    trial = release_once(interviews(2 * ROWS), 1, method="mixture", noise=NoiseSource.insecure(2))
    names = set(trial.task.domain.modelled)
    counted = {frozenset(table.names) for table in trial.model.released_counts.tables}
    pairs = [(first, "age") for first in sorted(names - {"age"})]
    pair = next(pair for pair in pairs if not any(set(pair) <= table for table in counted))
    answer = answered(trial, f"mean({pair[1]}) by `{pair[0]}`", "population")
    assert "no table that the release counted holds these columns" in answer.notes[0]
    assert all(each.model > each.noise for each in answer.estimates)


def test_a_group_within_the_noise_has_no_figure():
    trial = release_once(interviews(ROWS), 0.5, method="mixture", noise=NoiseSource.insecure(2))
    estimate = only(answered(trial, "mean(age) where age >= 85", "population"))
    assert estimate.value is None
    assert "noise" in estimate.remark


@pytest.mark.slow
def test_intervals_of_counts_hold_the_truth_as_often_as_they_say():
    inside = []
    for seed in range(12):
        shape = interviews(ROWS, seed)
        trial = release_once(shape, 1, method="mixture", noise=NoiseSource.insecure(100 + seed))
        for text, column in (("table(`home region`)", "home region"), ("table(sex)", "sex")):
            answer = answered(trial, text)
            truth = trial.real.frame()[column].value_counts(normalize=True)
            inside += [e.low <= truth[e.group[column]] <= e.high for e in answer.estimates]
    assert 0.85 < np.mean(inside) <= 1
