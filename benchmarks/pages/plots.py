"""Plots of an experiment: curves over epsilon if it has several, else boxes over attributes.

Errors of conjunctions are drawn as distributions, those of Bayesian networks as bars.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cloister.benchmarks.config import DECLARED, Experiment
from cloister.benchmarks.measures.distributions import draw_distributions
from cloister.benchmarks.pages.figures import Repeats, Setting, statistic
from cloister.benchmarks.pages.network_plots import draw_networks
from cloister.benchmarks.pages.plot_style import dress, line_colours
from cloister.benchmarks.runs import Run
from cloister.evaluation.plots import FAINT, REAL, SYNTHETIC, figure_label
from cloister.tasks.home.files import replace_file

CURVES = (
    ("accuracy", "learning.synthetic.accuracy", "learning.real.accuracy"),
    ("F1", "learning.synthetic.f1", "learning.real.f1"),
    ("1-way half L1", "marginals.1_way.half_l1", ""),
    ("2-way half L1", "marginals.2_way.half_l1", ""),
    ("3-way half L1", "marginals.3_way.half_l1", ""),
    ("detection AUC", "detection.auc", ""),
    ("2-way half L1 across", "relations.across.half_l1", ""),
    ("3-way half L1 across", "relations.across.3_way.half_l1", ""),
)


def draw_experiment(experiment: Experiment, repeats: Repeats, prefix: Path) -> tuple[Path, ...]:
    """Draw an experiment into PNG files whose names begin with ``prefix``; their paths.

    Raises:
        StorageError: they cannot be written.
    """
    several = len(experiment.epsilons) > 1
    figures = _curves_by_dataset(repeats) if several else {"spread": _boxes(repeats)}
    if "conjunctions" in experiment.tables:
        figures |= draw_distributions(repeats)
    if "network" in experiment.tables:
        figures |= draw_networks(repeats)
    paths = []
    for name, figure in figures.items():
        if figure is not None:
            path = prefix.with_name(f"{prefix.name}-{name}.png")
            replace_file(path, partial(figure.savefig, dpi=110, format="png"))
            paths.append(path)
    return tuple(paths)


def _curves_by_dataset(repeats: Repeats) -> dict[str, Figure | None]:
    return {
        f"epsilon-{dataset}": _curves(
            {setting: runs for setting, runs in repeats.items() if setting.dataset == dataset}
        )
        for dataset in dict.fromkeys(setting.dataset for setting in repeats)
    }


def _curves(repeats: Repeats) -> Figure | None:
    shown = [curve for curve in CURVES if len(_epsilons_of(repeats, curve[1])) > 1]
    if not shown:
        return None
    figure = Figure(
        figsize=(1.8 + 4.2 * min(len(shown), 3), 3.4 * -(-len(shown) // 3)), layout="constrained"
    )
    lines, columns = -(-len(shown) // 3), min(len(shown), 3)
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, (title, name, truth) in zip(panels, shown, strict=False):
        _curve(axes, repeats, name, truth)
        dress(axes, title)
        axes.set_xlabel("epsilon", color=REAL, fontsize=9)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="outside right upper",
        frameon=False,
        fontsize=8,
    )
    return figure


def _epsilons_of(repeats: Repeats, name: str) -> set[Fraction]:
    """The epsilons at which a figure was measured."""
    return {setting.epsilon for setting, runs in repeats.items() if statistic(runs, name)}


def _curve(axes: Axes, repeats: Repeats, name: str, truth: str) -> None:
    lines: dict[str, dict[float, Setting]] = {}
    for setting in repeats:
        lines.setdefault(_line_name(setting), {})[float(setting.epsilon)] = setting
    for colour, (label, points) in zip(line_colours(), lines.items(), strict=False):
        drawn = [
            (epsilon, statistic(repeats[setting], name))
            for epsilon, setting in sorted(points.items())
        ]
        known = [
            (epsilon, value.mean, value.deviation or 0.0)
            for epsilon, value in drawn
            if value is not None
        ]
        if known:
            places, means, spreads = zip(*known, strict=True)
            axes.errorbar(
                places,
                means,
                spreads,
                color=colour,
                marker="o",
                ms=4,
                capsize=2,
                label=figure_label(label),
            )
    real = statistic([run for runs in repeats.values() for run in runs], truth)
    if real is not None:
        axes.axhline(real.mean, color=REAL, linestyle="--", linewidth=1, label="real rows")
    epsilons = sorted({float(setting.epsilon) for setting in repeats})
    axes.set_xscale("log")
    axes.set_xticks(
        epsilons, [f"{epsilon:g}" for epsilon in epsilons], rotation=60 if len(epsilons) > 6 else 0
    )
    axes.minorticks_off()


def _boxes(repeats: Repeats) -> Figure | None:
    """A box for each setting, over attributes or sets of them, of its first repeat with figures."""
    panels: dict[str, dict[str, list[float]]] = {}
    for setting, runs in repeats.items():
        for panel, values in _spreads(next((run for run in runs if run.evaluation), runs[0])):
            panels.setdefault(panel, {})[f"{setting.dataset}, {_line_name(setting)}"] = values
    if not panels:
        return None
    high = max(len(boxes) for boxes in panels.values())
    figure = Figure(figsize=(3.6 * len(panels), 1.2 + 0.32 * high), layout="constrained")
    alike = len({tuple(boxes) for boxes in panels.values()}) == 1
    beside = figure.subplots(1, len(panels), squeeze=False, sharey=alike).flat
    for axes, (title, boxes) in zip(beside, panels.items(), strict=True):
        axes.boxplot(
            list(boxes.values()),
            tick_labels=[figure_label(name) for name in boxes],
            orientation="horizontal",
            widths=0.5,
            patch_artist=True,
            boxprops={"facecolor": FAINT, "edgecolor": SYNTHETIC},
            medianprops={"color": SYNTHETIC, "linewidth": 2},
            flierprops={"marker": ".", "markersize": 4, "markeredgecolor": REAL},
        )
        dress(axes, title, grid="x")
        if not alike or axes is figure.axes[0]:
            axes.invert_yaxis()
    return figure


def _spreads(run: Run) -> Iterator[tuple[str, list[float]]]:
    """Figures over attributes or sets of attributes of one run, by the panel that shows them."""
    evaluation = run.evaluation or {}
    targets = evaluation.get("learning", {}).get("targets", {}).values()
    for title, name in (("accuracy of each target", "accuracy"), ("F1 of each target", "f1")):
        known = [target[name] for target in targets if target[name] is not None]
        if known:
            yield title, known
    for way in evaluation.get("marginals", ())[:2]:
        yield (
            f"half L1 of each {way['ways']}-way marginal",
            [marginals["half_l1"] for marginals in way["sets"]],
        )


def _line_name(setting: Setting) -> str:
    variant = "" if setting.variant == DECLARED else f", {setting.variant}"
    return f"{setting.method}{variant}"
