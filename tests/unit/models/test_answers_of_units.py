"""Answers on rows that were counted as rows of units: by lot, weighed by the numbers of rows."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from pupils import marks_of_persons, pupils

from cloister.errors import InputError
from cloister.models.answers.answer import answer_question, shares_of_parts
from cloister.models.answers.question import parse_question
from cloister.models.core.histograms import HistogramCounts
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.protocol import CountedRows
from cloister.models.relational.families import families_of, unit_tables
from cloister.models.task import table_task, task_of
from cloister.models.transforms.unit_tables import PERSONS, unit_table, unit_tasks
from cloister.schema.partition import declared_cells
from cloister.schema.relations import Database
from cloister.schema.spec import Spec
from cloister.tasks.data.bounding import bound

PUPILS, RELEASES = 500, 40
FIGURES = {
    "count()": lambda rows: {(): len(rows)},
    "count() by subject": lambda rows: rows.groupby("subject").size(),
    "count() where mark >= 5": lambda rows: {(): (rows["mark"] >= 5).sum()},
    "share(subject = A)": lambda rows: {(): (rows["subject"] == "A").mean()},
    "table(subject)": lambda rows: rows.groupby("subject").size() / len(rows),
    "mean(mark)": lambda rows: {(): rows["mark"].mean()},
}
POPULATION = 40_000


def counted(units, tasks, names, deviation, seed):
    """What a fit would count of units: histograms, and each attribute beside the number of rows."""
    rng = np.random.default_rng(seed)

    def noisy(*partitions):
        index = [each.index(units.stored[each.name].astype(np.int64)) for each in partitions]
        shape = [each.size for each in partitions]
        counts = np.bincount(np.ravel_multi_index(index, shape), minlength=np.prod(shape))
        noise = rng.normal(0, deviation, shape)
        return NoisyTable(partitions, counts.reshape(shape) + noise, deviation)

    of = (tasks.counted, *names.values())
    histograms = {name: HistogramCounts(noisy(declared_cells(units.domain[name]))) for name in of}
    bins = {name: each.bins(tasks.units) for name, each in histograms.items()}
    tables = tuple(noisy(bins[tasks.counted], bins[name]) for name in of[1:])
    released = ReleasedCounts(units.rows, histograms, bins, tables)
    model = SimpleNamespace(histograms=bins)
    first = frozenset(tasks.of_rows)
    return CountedRows(model, tasks.units, released, tasks.counted, first, names)


def persons(seed, deviation=4.0):
    """Marks whose pupils are the units, up to twenty of each: what was counted, and the rows."""
    shape = marks_of_persons(PUPILS, most=20, seed=seed)
    task = table_task(shape.declared(), len(shape.frame))
    shuffled = shape.frame.sample(frac=1, random_state=seed)
    units = unit_table(task.domain.encode(shuffled), task).tables[PERSONS]
    names = {name: name for name in ("mark", "subject")}
    return counted(units, unit_tasks(task), names, deviation, seed), shape.frame, task


def children(seed, deviation=4.0):
    """The same as two tables, so that pupils without marks are units, too."""
    shape = pupils(PUPILS, seed=seed)
    numbers = {name: len(frame) for name, frame in shape.frames.items()}
    task = task_of(Spec.declared_in("", shape.spec), numbers)
    coded = {name: table.encode(shape.frames[name]) for name, table in task.schema.tables.items()}
    units = unit_tables(bound(Database(task.schema, coded), bytes([seed])), task)
    (family,) = families_of(task).values()
    child = family.children["marks"]
    names = {name: child.names[name] for name in ("mark", "subject")}
    rows = counted(units["units of pupils"], child.tasks, names, deviation, seed)
    return rows, shape.frames["marks"], task.tables["marks"]


@pytest.fixture(scope="module")
def population():
    return pupils(POPULATION, seed=99).frames["marks"]


@pytest.mark.parametrize("shape", [persons, pytest.param(children, marks=pytest.mark.slow)])
def test_intervals_hold_the_figures_of_rows(shape, population, monkeypatch):
    """Numbers of rows have one bin each, or of pupils with none, too, share some."""
    for module in ("evidence", "groups"):
        monkeypatch.setattr(f"cloister.models.answers.{module}.REPLICATES", 8)
    held = defaultdict(list)
    for seed in range(RELEASES):
        rows, frame, task = shape(seed)
        for text, figure in FIGURES.items():
            for of, true in (("table", figure(frame)), ("population", figure(population))):
                scale = PUPILS / POPULATION if "count" in text and of == "population" else 1
                for each in answer_question(parse_question(text, task.domain), rows, of).estimates:
                    value = scale * true[next(iter(each.group.values()), ())]
                    held[text, of].append(each.low <= value <= each.high)
    assert all(np.mean(each) > 0.84 for each in held.values())  # of 40 0.95 is off by 0.034
    assert 0.93 < np.mean([hit for each in held.values() for hit in each]) < 0.99


@pytest.mark.parametrize("shape", [persons, children])
def test_units_without_rows_are_no_group_and_other_figures_are_refused(shape):
    rows, frame, task = shape(1, 0.001)
    (total,) = answer_question(parse_question("count()", task.domain), rows).estimates
    assert total.value == pytest.approx(len(frame), abs=1)
    groups = answer_question(parse_question("table(subject)", task.domain), rows)
    assert [each.group for each in groups.estimates] == [{"subject": name} for name in "ABCD"]
    assert sum(each.value for each in groups.estimates) == pytest.approx(1, abs=1e-3)
    assert any("of each unit" in note for note in groups.notes)
    for text, fault in (
        ("linear(mark ~ subject)", "regressions are of rows"),
        ("table(subject, mark)", "the release counted no table"),
    ):
        with pytest.raises(InputError, match=fault):
            answer_question(parse_question(text, task.domain), rows)


def test_reports_have_intervals_of_shares_of_rows():
    rows, frame, task = children(2)
    ends = shares_of_parts(rows, declared_cells(task.domain["subject"]))
    shares = frame["subject"].value_counts(normalize=True)
    assert len(ends) == 4
    assert all(
        low - 0.02 < shares[name] < high + 0.02
        for name, (low, high) in zip("ABCD", ends, strict=True)
    )
