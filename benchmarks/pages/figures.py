"""Means and deviations over the repeats of an experiment, as tables of text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from cloister.benchmarks.config import DECLARED, NOISELESS, REFERENCES, Benchmark, Experiment
from cloister.benchmarks.measures.conjunctions import BEST, BINARY
from cloister.benchmarks.measures.networks import SHOWN
from cloister.benchmarks.runs import Run
from cloister.privacy.exact import decimal

UTILITY = (
    ("1-way half L1", "marginals.1_way.half_l1", 4),
    ("1-way largest cell", "marginals.1_way.largest_cell", 4),
    ("2-way half L1", "marginals.2_way.half_l1", 4),
    ("3-way half L1", "marginals.3_way.half_l1", 4),
    ("range queries", "queries.mean_error", 4),
    ("detection AUC", "detection.auc", 3),
    ("accuracy", "learning.synthetic.accuracy", 3),
    ("F1", "learning.synthetic.f1", 3),
    ("accuracy, real rows", "learning.real.accuracy", 3),
    ("F1, real rows", "learning.real.f1", 3),
)
RELATIONS = (
    ("2-way half L1", "relations.across.half_l1", 4),
    ("3-way half L1", "relations.across.3_way.half_l1", 4),
    ("siblings half L1", "relations.siblings.half_l1", 4),
    ("sizes half L1", "relations.sizes.half_l1", 4),
    ("orphans", "relations.orphans", 0),
    ("beyond bound", "relations.beyond_bound", 0),
)
COST = (
    ("wall s", "seconds", 1),
    ("CPU s", "cpu_seconds", 1),
    ("peak MiB", "memory_mib", 0),
    ("fit s", "step.fit.seconds", 1),
    ("sample s", "step.sample.seconds", 1),
)


@dataclass(frozen=True)
class Setting:
    """What the repeats of a run have in common."""

    dataset: str
    method: str
    variant: str
    epsilon: Fraction

    @classmethod
    def of(cls, run: Run) -> Setting:
        """The setting of a run."""
        return cls(run.dataset, run.method, run.variant, Fraction(run.epsilon))

    @property
    def label(self) -> str:
        """Method, variant unless it is the declared one, and epsilon if it has any."""
        if self.method == NOISELESS:
            return self.method
        variant = "" if self.variant == DECLARED else f", {self.variant}"
        return f"{self.method}{variant}, ε {decimal(self.epsilon)}"


@dataclass(frozen=True)
class Statistic:
    """Mean over repeats, and their sample standard deviation if there are two or more."""

    mean: float
    deviation: float | None

    def text(self, digits: int) -> str:
        """Mean and deviation with ``digits`` decimals."""
        spread = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


@dataclass(frozen=True)
class Table:
    """A table of text."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Repeats = dict[Setting, list[Run]]


def repeats_of(benchmark: Benchmark, experiment: Experiment, runs: Sequence[Run]) -> Repeats:
    """The runs of an experiment by setting, in the order of its configuration.

    Those that failed have no figures.
    """
    done: Repeats = {}
    for run in runs:
        done.setdefault(Setting.of(run), []).append(run)
    wanted = (
        Setting(c.dataset, c.method, c.variant, c.epsilon)
        for c in benchmark.combinations(experiment)
    )
    return {setting: done[setting] for setting in dict.fromkeys(wanted) if setting in done}


def statistic(repeats: Sequence[Run], name: str) -> Statistic | None:
    """Mean and deviation of a figure; None if no run has it."""
    known = [figures[name] for figures in (run.figures() for run in repeats) if name in figures]
    if not known:
        return None
    return Statistic(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def tables_of(experiment: Experiment, repeats: Repeats) -> list[Table]:
    """The tables that an experiment asks for, without those that would be empty."""
    makers: dict[str, Callable[[Repeats], Table]] = {
        "violations": _violations,
        "utility": lambda runs: _measures("Utility", UTILITY, runs),
        "relations": lambda runs: _measures("Across references, mean", RELATIONS, runs),
        "conjunctions": _conjunctions,
        "network": _network,
        "cost": lambda runs: _measures(
            "Cost of one release command or run of a peer, without evaluation", COST, runs
        ),
    }
    made = (makers[name](repeats) for name in experiment.tables)
    return [table for table in made if table.rows]


def _measures(title: str, measures: Sequence[tuple[str, str, int]], repeats: Repeats) -> Table:
    """A row for each setting.

    Measures that no run has are left out, and where all repeats failed is said why.
    """
    known = [m for m in measures if any(statistic(runs, m[1]) for runs in repeats.values())]
    measured = {
        setting: runs
        for setting, runs in repeats.items()
        if setting.method not in REFERENCES or any(statistic(runs, m[1]) for m in known)
    }
    rows = tuple(
        (
            setting.dataset,
            setting.label,
            *(_failure(runs, known) or (_text(statistic(runs, m[1]), m[2]) for m in known)),
        )
        for setting, runs in measured.items()
    )
    return Table(
        title, ("dataset", "method", *(heading for heading, _, _ in known)), rows if known else ()
    )


def _conjunctions(repeats: Repeats) -> Table:
    """A row for each set of queries and setting: errors in rows of the best queries."""
    shown = with_binary_columns(repeats)
    headings = [f"{percent} %, {name}" for percent in BEST for name in ("average", "largest")]
    rows = []
    for queries in query_sets(repeats):
        for setting, runs in shown.items():
            errors = [
                statistic(runs, f"conjunctions.{queries}.{percent}.{name}")
                for percent in BEST
                for name in ("average", "largest")
            ]
            if any(errors):
                texts = (
                    _text(error, 1 if error and 0 < error.mean < 10 else 0) for error in errors
                )
                rows.append((setting.dataset, queries, setting.label, *texts))
    return Table(
        "Absolute errors in rows, of the queries of least error",
        ("dataset", "queries", "method", *headings),
        tuple(rows),
    )


def network_attributes(repeats: Repeats) -> dict[str, tuple[str, ...]]:
    """The attributes of each dataset that the errors of a network are known of."""
    attributes: dict[str, dict[str, None]] = {}
    for setting, runs in repeats.items():
        for run in runs:
            for error in (run.evaluation or {}).get("network", ()):
                attributes.setdefault(setting.dataset, {})[error["attribute"]] = None
    return {dataset: tuple(sorted(names)) for dataset, names in attributes.items()}


def network_statistics(
    repeats: Repeats, dataset: str, attribute: str
) -> dict[Setting, dict[str, Statistic]]:
    """The errors about one attribute, by setting and by what is wrong; shares of rows."""
    by_setting: dict[Setting, dict[str, Statistic]] = {}
    for setting, runs in repeats.items():
        if setting.dataset == dataset:
            named = {name: statistic(runs, f"network.{attribute}.{name}") for name in SHOWN}
            by_setting[setting] = {
                name: value for name, value in named.items() if value is not None
            }
    return {setting: errors for setting, errors in by_setting.items() if errors}


def _network(repeats: Repeats) -> Table:
    """A row for each attribute and setting: the share of rows that are told wrongly."""
    rows = tuple(
        (dataset, attribute, setting.label, *(_text(errors.get(name), 3) for name in SHOWN))
        for dataset, attributes in network_attributes(repeats).items()
        for attribute in attributes
        for setting, errors in network_statistics(repeats, dataset, attribute).items()
    )
    headings = ("dataset", "attribute", "method", *SHOWN)
    return Table(
        "Share of real rows whose attribute is told wrongly, given all others", headings, rows
    )


def with_binary_columns(repeats: Repeats) -> Repeats:
    """The runs, each followed by its binary columns, if it has any, as a variant of their own."""
    shown: Repeats = {}
    for setting, runs in repeats.items():
        shown[setting] = runs
        binary = [
            replace(run, evaluation={"conjunctions": run.evaluation[BINARY]})
            for run in runs
            if run.evaluation and BINARY in run.evaluation
        ]
        if binary:
            variant = BINARY if setting.variant == DECLARED else f"{setting.variant}, {BINARY}"
            shown[replace(setting, variant=variant)] = binary
    return shown


def query_sets(repeats: Repeats) -> list[str]:
    """The names of the sets of conjunctions that runs were measured on."""
    evaluated = (run.evaluation for runs in repeats.values() for run in runs if run.evaluation)
    names = (each["queries"] for run in evaluated for each in run.get("conjunctions", ()))
    return list(dict.fromkeys(names))


def _failure(repeats: Sequence[Run], measures: Sequence[object]) -> tuple[str, ...]:
    """The cells of a row without figures: the first reason, and nothing more.

    Empty if a repeat did not fail.
    """
    if not all(run.error for run in repeats):
        return ()
    return (f"failed: {repeats[0].error}", *("" for _ in measures[1:]))


def _violations(repeats: Repeats) -> Table:
    """A row for each constraint, a column for each method.

    Percent of all rows or unordered pairs of rows.
    """
    labels = tuple(dict.fromkeys(setting.label for setting in repeats))
    rows = []
    for dataset in dict.fromkeys(setting.dataset for setting in repeats):
        columns = {
            setting.label: runs for setting, runs in repeats.items() if setting.dataset == dataset
        }
        every = [run for runs in columns.values() for run in runs if run.evaluation]
        for name, kind in _rules(every):
            real = statistic(every[:1], f"violations.{name}.real_percent")
            shares = (
                statistic(columns.get(label, ()), f"violations.{name}.percent") for label in labels
            )
            rows.append(
                (dataset, name, kind, _percent(real), *(_percent(share) for share in shares))
            )
    return Table(
        "Violations, percent", ("dataset", "constraint", "kind", "real rows", *labels), tuple(rows)
    )


def _rules(runs: Sequence[Run]) -> list[tuple[str, str]]:
    rules = [rule for run in runs if run.evaluation for rule in run.evaluation["violations"]]
    return list(dict.fromkeys((rule["name"], "hard" if rule["hard"] else "soft") for rule in rules))


def _percent(share: Statistic | None) -> str:
    """Exactly zero is written as 0; anything else never is."""
    if share is None or (share.mean, share.deviation or 0.0) == (0.0, 0.0):
        return _text(share, 0)
    return share.text(3) if share.mean >= 0.001 else f"{share.mean:.1e}"


def _text(value: Statistic | None, digits: int) -> str:
    return "-" if value is None else value.text(digits)
