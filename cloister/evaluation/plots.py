"""An evaluation drawn as PNG figures, and written as CSV files for spreadsheets.

Of one table, and of the relationships of several.

Privacy: as internal as the evaluation itself.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cloister.errors import StorageError
from cloister.evaluation.learning import Learning
from cloister.evaluation.marginals import Marginals, marginal_records
from cloister.evaluation.relations import ForeignKeyMeasures, UnitMeasures
from cloister.evaluation.report import Evaluation
from cloister.figures import count_of

_T = TypeVar("_T")

_MOST_BARS = 40
"""Attributes, constraints or targets at most in one figure."""

_LONGEST_LABEL = 32
"""Characters of a name at most in a figure."""

REAL, SYNTHETIC, LINE, FAINT = "#5b6770", "#0b7285", "#c9d1d6", "#e9edef"


def write_plots(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Draw what was measured into PNG files in ``folder``; the paths of the files.

    Raises:
        StorageError: the folder cannot be written.
    """
    drawn = {
        "marginals.png": _marginals_figure(evaluation.marginals) if evaluation.marginals else None,
        "violations.png": _violations_figure(evaluation) if evaluation.violations else None,
        "accuracy.png": _accuracy_figure(evaluation.learning, evaluation.truth)
        if evaluation.learning
        else None,
    }
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    return _written(folder, figures, _save)


def write_tables(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write what was measured as CSV files into ``folder``; the paths of the files.

    Raises:
        StorageError: the folder cannot be written.
    """
    trained = (("synthetic", evaluation.learning), ("real", evaluation.truth))
    records: dict[str, list[dict[str, object]]] = {
        "marginals.csv": list(marginal_records(evaluation.marginals)),
        "violations.csv": [violations.to_dict() for violations in evaluation.violations],
        "persons.csv": evaluation.to_dict().get("persons", {}).get("spread_within", []),
        "accuracy.csv": [
            row for name, learning in trained if learning for row in _scores(name, learning)
        ],
    }
    return _written(folder, {name: rows for name, rows in records.items() if rows}, _write)


def write_files(
    folder: Path, figures: Mapping[str, Figure], records: Mapping[str, list[dict[str, object]]]
) -> list[Path]:
    """Write figures, and records that there are, as files of a folder, by name; their paths.

    Raises:
        StorageError: the folder cannot be written.
    """
    some = {name: rows for name, rows in records.items() if rows}
    return _written(folder, figures, _save) + _written(folder, some, _write)


def _written(
    folder: Path, contents: Mapping[str, _T], write: Callable[[_T, Path], None]
) -> list[Path]:
    """Write contents as files of a folder, by name; their paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write(content, folder / name)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written ({error.strerror}); choose another folder or free some "
            "space"
        ) from None
    return [folder / name for name in contents]


def _scores(trained_on: str, learning: Learning) -> Iterable[dict[str, object]]:
    for s in learning.scores:
        yield {
            "target": s.target,
            "classifier": s.classifier,
            "trained_on": trained_on,
            "accuracy": s.accuracy,
            "f1": s.f1,
        }


def _write(rows: Sequence[dict[str, object]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _save(figure: Figure, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(path, dpi=150, bbox_inches="tight", facecolor="white")


def _marginals_figure(marginals: Sequence[Marginals]) -> Figure:
    single = sorted(marginals[0].sets, key=lambda m: -m.half_l1)[:_MOST_BARS]
    figure = Figure(figsize=(11, 1.6 + 0.26 * max(len(single), 8)), layout="constrained")
    bars, boxes = figure.subplots(1, 2, width_ratios=(3, 2))
    places = np.arange(len(single))
    bars.barh(places, [m.half_l1 for m in single], color=SYNTHETIC, height=0.66, label="half L1")
    bars.plot(
        [m.largest_cell for m in single],
        places,
        "o",
        color="white",
        mec=REAL,
        ms=5,
        label="largest cell",
    )
    _name_rows(bars, [m.attributes[0] for m in single])
    bars.set_xlim(0, max(0.01, 1.05 * max(m.half_l1 for m in single)))
    bars.legend(frameon=False, loc="lower right", fontsize=8)
    title_axes(bars, "Each attribute", "distance of its marginal (0 = equal, 1 = disjoint)")
    _draw_boxes(boxes, marginals)
    return figure


def _draw_boxes(axes: Axes, marginals: Sequence[Marginals]) -> None:
    distances = [[m.half_l1 for m in way.sets] for way in marginals]
    names = [
        f"{way.ways}-way\n{count_of(len(way.sets), 'set')}\nmean {way.half_l1:.3f}"
        for way in marginals
    ]
    axes.boxplot(
        distances,
        tick_labels=names,
        widths=0.5,
        patch_artist=True,
        boxprops={"facecolor": FAINT, "edgecolor": SYNTHETIC},
        medianprops={"color": SYNTHETIC, "linewidth": 2},
        flierprops={"marker": ".", "markersize": 4, "markeredgecolor": REAL},
    )
    axes.set_ylim(0, max(0.01, 1.05 * max(map(max, distances))))
    axes.grid(axis="y", color=FAINT)
    title_axes(axes, "Sets of attributes", "")
    axes.set_ylabel("half L1 distance", color=REAL, fontsize=9)


def _violations_figure(evaluation: Evaluation) -> Figure:
    shown = sorted(evaluation.violations, key=lambda v: -v.synthetic_percent)[:_MOST_BARS]
    names = [f"{v.name} ({'hard' if v.hard else 'soft'})" for v in shown]
    figure = Figure(figsize=(8.5, 1.5 + 0.34 * max(len(shown), 2)), layout="constrained")
    axes = figure.subplots()
    _dumbbells(axes, names, [v.real_percent for v in shown], [v.synthetic_percent for v in shown])
    axes.set_xlim(0, max(0.1, 1.05 * max(max(v.real_percent, v.synthetic_percent) for v in shown)))
    title_axes(axes, "Constraint violations", "percent of all rows or pairs of rows")
    return figure


def _accuracy_figure(learning: Learning, truth: Learning | None) -> Figure:
    known = truth.by_target() if truth else {}
    shown = sorted(learning.by_target().items(), key=lambda item: -item[1][0])[:_MOST_BARS]
    figure = Figure(figsize=(8.5, 1.5 + 0.3 * max(len(shown), 3)), layout="constrained")
    axes = figure.subplots()
    reals = [known.get(name, (np.nan, None))[0] for name, _ in shown]
    _dumbbells(axes, [name for name, _ in shown], reals, [accuracy for _, (accuracy, _) in shown])
    means = f"trained on synthetic rows {learning.accuracy:.3f}" + (
        f", on real rows {truth.accuracy:.3f}" if truth else ""
    )
    title_axes(
        axes, "Accuracy on real rows, mean of nine classifiers", f"mean over all targets: {means}"
    )
    return figure


def _dumbbells(
    axes: Axes, names: Sequence[str], reals: Sequence[float], synthetics: Sequence[float]
) -> None:
    places = np.arange(len(names))
    axes.hlines(places, reals, synthetics, color=LINE, linewidth=3, zorder=1)
    axes.plot(
        reals,
        places,
        "o",
        ms=7,
        mfc="white",
        mec=REAL,
        mew=1.6,
        label="real",
        zorder=3,
        clip_on=False,
    )
    axes.plot(
        synthetics, places, "o", ms=5, color=SYNTHETIC, label="synthetic", zorder=4, clip_on=False
    )
    _name_rows(axes, names)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(np.arange(len(names)), [figure_label(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color=FAINT)
    axes.set_axisbelow(True)


def title_axes(axes: Axes, title: str, below: str) -> None:
    """Give a part of a figure its title and the name of its lower axis."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(below, color=REAL, fontsize=9)
    axes.tick_params(labelsize=8, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def figure_label(name: str) -> str:
    """A name as a figure shows it: on one line, at most 32 characters, dollar signs escaped."""
    line = re.sub(r"\s+", " ", name).strip()
    short = line if len(line) <= _LONGEST_LABEL else line[: _LONGEST_LABEL - 1] + "…"
    return short.replace("$", r"\$")


_MOST_SIZES = 30
"""Numbers of rows that a figure shows; greater ones are added to the last."""

_MOST_WORST = 8
"""Attributes, or pairs of them, that a figure shows of a unit's rows: the worst."""

_FEWEST_BARS = 4
"""Attributes that there is room for at least, so that bars of few are no thicker."""

_WIDTH, _HEIGHT = 12.0, 2.6
"""Inches of a figure, and of each kind of unit in it."""

_BAR = 0.4
"""Width of a bar, where sizes are 1 apart: a pair of them leaves a gap to the next."""

_MOST_FIGURES = 12
"""Kinds of units at most in one figure, those whose sizes differ most."""


def write_relations(relations: Sequence[ForeignKeyMeasures], folder: Path) -> list[Path]:
    """Write the measures of relationships into ``folder``; the paths of the files.

    There are none without any.

    Raises:
        StorageError: the folder cannot be written.
    """
    if not relations:
        return []
    records = {
        "relations.csv": list(_records(relations)),
        "relation_marginals.csv": [
            {"relation": relation.label, **record}
            for relation in relations
            for record in marginal_records((*relation.units.all_siblings, *relation.units.across))
        ],
    }
    return write_files(folder, {}, records)


def write_units(units: Mapping[str, UnitMeasures], folder: Path) -> list[Path]:
    """Draw the measures of rows of one unit into ``folder``; the path of the file, if any are.

    Raises:
        StorageError: the folder cannot be written.
    """
    return write_files(folder, {"units.png": _units_figure(units)} if units else {}, {})


def _records(relations: Sequence[ForeignKeyMeasures]) -> Iterator[dict[str, object]]:
    for relation in relations:
        for measure, value in relation.metrics().items():
            yield {"relation": relation.label, "measure": measure, "value": value}


def _units_figure(units: Mapping[str, UnitMeasures]) -> Figure:
    """Sizes, siblings and across of units, a row for each kind."""
    shown = sorted(units.items(), key=lambda unit: -unit[1].sizes)[:_MOST_FIGURES]
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), 3, squeeze=False)
    for (sizes, siblings, across), (name, measures) in zip(axes, shown, strict=True):
        _draw_sizes(sizes, measures)
        title_axes(sizes, f"{figure_label(name)}\nSizes: {measures.sizes:.3f}", "rows of a unit")
        pairs = [way for way in measures.across if way.ways == 2]
        joint = (*measures.all_siblings, *pairs)
        most = max((marginal.half_l1 for way in joint for marginal in way.sets), default=0.0)
        for part, title, ways in (
            (siblings, "Siblings", measures.all_siblings),
            (across, "Across", pairs),
        ):
            _draw_worst(part, title, ways, max(0.01, 1.05 * most))
    return figure


def _draw_sizes(axes: Axes, measures: UnitMeasures) -> None:
    real, synthetic = (_cut(shares) for shares in measures.degrees)
    places = np.arange(len(real))
    axes.bar(places - _BAR / 2, real, width=_BAR, color=REAL, label="real")
    axes.bar(places + _BAR / 2, synthetic, width=_BAR, color=SYNTHETIC, label="synthetic")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8)


def _draw_worst(axes: Axes, title: str, joint: Sequence[Marginals], most: float) -> None:
    """The worst of some joint tables as bars, up to ``most``; without any no axes."""
    if not joint:
        axes.set_axis_off()
        return
    worst = sorted(joint[0].sets, key=lambda pair: -pair.half_l1)[:_MOST_WORST]
    distances = [pair.half_l1 for pair in worst]
    axes.barh(np.arange(len(worst)), distances, color=SYNTHETIC, height=0.66)
    _name_rows(axes, [" · ".join(dict.fromkeys(pair.attributes)) for pair in worst])
    axes.set_ylim(max(len(worst), _FEWEST_BARS) - 0.4, -0.6)
    axes.set_xlim(0, most)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    title_axes(axes, f"{title}: mean {joint[0].half_l1:.3f}", "half L1 distance")


def _cut(shares: np.ndarray) -> np.ndarray:
    """The shares (sizes,) that are shown, the last of all greater ones too."""
    if len(shares) <= _MOST_SIZES:
        return shares
    return np.append(shares[: _MOST_SIZES - 1], shares[_MOST_SIZES - 1 :].sum())
