"""The whole evaluation: levels, small tables, what it contains and never contains, its files."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.constraints.denial import Cell, DenialConstraint, Op, Predicate
from cloister.errors import DataError, StorageError
from cloister.evaluation.report import Evaluation, compare_violations
from cloister.evaluation.targets import targets_of
from cloister.schema.attributes import Boolean, Categorical, Integer
from cloister.schema.domain import Domain, Table


def late_imports():
    global evaluate_tables, figure_label, write_plots, write_tables
    from cloister.evaluation.measures import evaluate_tables
    from cloister.evaluation.plots import figure_label, write_plots, write_tables


UGLY = "a $b$ c-d'é"
DOMAIN = Domain.of(
    {
        UGLY: Categorical(type="categorical", values=["planted-value", "other"], nullable=True),
        "日本 \n語": Integer(type="integer", min=0, max=40_000),
        "x_y^z": Boolean(type="boolean"),
    },
    Path(),
)


def same(attribute: str) -> Predicate:
    return Predicate(Cell(1, attribute), Op.EQ, Cell(2, attribute))


CONSTRAINTS = (
    DenialConstraint("fd $x$", (same("x_y^z"), Predicate(Cell(1, UGLY), Op.NE, Cell(2, UGLY)))),
    DenialConstraint("soft", (Predicate(Cell(1, "日本 \n語"), Op.GT, 30_000),), hard=False),
)


def drawn(rows: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    numbers, ugly = rng.integers(0, 40_001, rows), rng.integers(0, 3, rows)
    flags = (numbers > 20_000).astype(np.int64)
    return Table(DOMAIN, {UGLY: ugly, "日本 \n語": numbers, "x_y^z": flags})


@pytest.fixture(scope="module")
def full() -> Evaluation:
    targets = targets_of({UGLY: ["planted-value"]}, DOMAIN)
    return evaluate_tables(
        drawn(400, 0), drawn(300, 1), CONSTRAINTS, targets, "full", held_out=drawn(200, 2)
    )


MEASURES = "marginals violations detection closest learning truth membership".split()


def test_a_full_evaluation_has_every_measure_quick_no_models_and_none_nothing(full) -> None:
    assert all(getattr(full, name) for name in MEASURES)
    assert (full.real_rows, full.synthetic_rows) == (400, 300)
    sides = drawn(60, 0), drawn(60, 1), CONSTRAINTS, ()
    quick, none = (evaluate_tables(*sides, level) for level in ("quick", "none"))
    assert all(getattr(quick, name) for name in MEASURES[:4])
    assert quick.learning is None and quick.truth is None
    assert none.metrics() == {} and none.marginals == ()


def test_an_evaluation_is_internal_and_its_report_strict_json_without_values(full) -> None:
    assert full.internal and full.to_dict()["internal"] is True
    with pytest.raises(TypeError):
        Evaluation("quick", 1, 1, internal=False)  # type: ignore[call-arg]
    with pytest.raises(dataclasses.FrozenInstanceError):
        full.internal = False  # type: ignore[misc]
    text = json.dumps(full.to_dict(), allow_nan=False, ensure_ascii=False)
    assert "planted-value" not in text
    assert json.dumps(UGLY, ensure_ascii=False)[1:-1] in text


def test_metrics_are_numbers_by_plain_names(full: Evaluation) -> None:
    metrics = full.metrics()
    assert all(re.fullmatch(r"[a-z0-9_.]+", name) for name in metrics)
    assert all(isinstance(figure, float) and np.isfinite(figure) for figure in metrics.values())
    some = "marginals.2_way.half_l1 detection.auc learning.real.accuracy membership.auc"
    assert set(some.split()) <= set(metrics)


def test_the_real_table_against_itself_is_perfect() -> None:
    real = drawn(200, 0)
    metrics = evaluate_tables(real, real, CONSTRAINTS, (), "quick").metrics()
    assert metrics["marginals.1_way.half_l1"] == metrics["marginals.3_way.half_l1"] == 0
    assert metrics["violations.soft.largest_difference"] == 0
    assert metrics["closest.copies"] == 1


def test_violations_stand_side_by_side() -> None:
    frame = {
        UGLY: ["other", "planted-value", "other"],
        "日本 \n語": [1, 2, 35_000],
        "x_y^z": [True, True, False],
    }
    real = DOMAIN.encode(pd.DataFrame(frame))
    synthetic = DOMAIN.encode(pd.DataFrame(frame | {UGLY: ["other"] * 3}))
    fd, soft = compare_violations(CONSTRAINTS, real, synthetic)
    assert (fd.name, fd.hard, fd.real, fd.synthetic) == ("fd $x$", True, 1, 0)
    assert fd.real_percent == pytest.approx(100 / 3)
    assert (soft.hard, soft.real, soft.synthetic_percent) == (False, 1, pytest.approx(100 / 3))


@pytest.mark.parametrize("rows", [1, 9, 19])
def test_small_tables_leave_out_what_they_cannot_carry(rows: int) -> None:
    real, synthetic, held_out = (drawn(rows, seed) for seed in range(3))
    targets = targets_of({"x_y^z": [True]}, DOMAIN)
    small = evaluate_tables(real, synthetic, CONSTRAINTS, targets, "full", held_out)
    assert small.marginals and small.detection is None and small.membership is None
    assert (small.learning is not None) == (rows >= 10)
    json.dumps(small.to_dict(), allow_nan=False)


def test_tables_that_cannot_be_compared_are_refused() -> None:
    domain = Domain.of({"else": Boolean(type="boolean")}, Path())
    stranger = Table(domain, {"else": np.zeros(3, dtype=np.int64)})
    with pytest.raises(DataError, match="other columns"):
        evaluate_tables(drawn(3, 0), stranger, (), (), "quick")
    with pytest.raises(DataError, match="synthetic table has no rows"):
        evaluate_tables(drawn(3, 0), drawn(0, 1), (), (), "quick")


def test_figures_and_files_are_written_quietly(full, tmp_path: Path, capfd, recwarn) -> None:
    drawn_files = write_plots(full, tmp_path / "plots")
    names = ["marginals.png", "violations.png", "accuracy.png"]
    assert [path.name for path in drawn_files] == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn_files)
    assert capfd.readouterr() == ("", "") and len(recwarn) == 0
    frames = {path.name: pd.read_csv(path) for path in write_tables(full, tmp_path / "plots")}
    assert len(frames["marginals.csv"]) == 3 + 3 + 1
    assert list(frames["violations.csv"]["name"]) == ["fd $x$", "soft"]
    assert len(frames["accuracy.csv"]) == 2 * 9
    assert set(frames["accuracy.csv"]["trained_on"]) == {"synthetic", "real"}
    (tmp_path / "file").write_text("")
    for write in (write_plots, write_tables):
        with pytest.raises(StorageError, match="cannot be written"):
            write(full, tmp_path / "file" / "plots")


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    nothing = evaluate_tables(drawn(30, 0), drawn(30, 1), (), (), "none")
    assert write_plots(nothing, tmp_path) == write_tables(nothing, tmp_path) == []
    quick = evaluate_tables(drawn(30, 0), drawn(30, 1), (), (), "quick")
    assert [path.name for path in write_plots(quick, tmp_path)] == ["marginals.png"]
    assert figure_label("a\n b\t$c$") == r"a b \$c\$"
    assert len(figure_label("x" * 100)) == 32
