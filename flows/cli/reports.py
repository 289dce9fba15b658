"""Outcomes, evaluations and certificates as tables or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloister.errors import InputError
from cloister.figures import figure_above, percent
from cloister.flows.cli.console import say, show_facts, show_json, show_table, warn
from cloister.models.task import Budget
from cloister.privacy.certificate.certificate import PAGE_NAME
from cloister.privacy.certificate.provenance import exact_text
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY
from cloister.tasks.home.home import Home

if TYPE_CHECKING:
    from cloister.evaluation.report import AnyEvaluation
    from cloister.flows.release import Finished, Outcome
    from cloister.privacy.certificate.certificate import Certificate, RecordGuarantees

_STAGE_HEADINGS = ("stage", "epsilon alone", "what for")
_PLACES = {"public": "public files", "internal": "internal files", "database": "database"}

NO_EPSILON = "not DP"
"""In place of the epsilon of what is not differentially private."""

INTERNAL_NOTE = "internal: measured on the real rows without noise; do not share"


def show_guarantees(records: RecordGuarantees | None) -> None:
    """Each guarantee of records made from seeds under its own name; nothing without them."""
    if records is None:
        return
    bounds = {
        "one released record, alone": records.one_record,
        f"all {records.candidates:,} candidates": records.all_candidates,
        "the network": records.network,
    }
    show_table(
        f"Records made from seeds, released under {records.guarantee}",
        ("of", "epsilon", "delta"),
        [
            (name, bound.epsilon, bound.delta) if bound else (name, "none", "none")
            for name, bound in bounds.items()
        ],
        "the epsilon charged is that of the network alone: NOT differential privacy of the table"
        if records.guarantee != DIFFERENTIAL_PRIVACY
        else "",
    )


def show_outcome(outcome: Outcome | Finished, as_json: bool) -> None:
    """What a release spent and produced, and where its files are."""
    content = outcome.to_json()
    if as_json:
        show_json(content)
        return
    stages = [
        (stage["name"], stage["epsilon"], stage["explanation"]) for stage in content["stages"]
    ]
    show_stages(
        stages,
        content["accounted_epsilon"],
        *(_amounts(amounts) for amounts in (content, content.get("charged", content))),
    )
    _show_violations(content)
    _show_figures(content["internal"])
    for sentence in content.get("warnings", []):
        warn(sentence)
    show_facts(
        f"Release {outcome.release} of {content['dataset']} {_ended(content)}",
        {
            "rows": _rows(content),
            "budget left": f"epsilon {content['budget_left']} of {content['budget_granted']} "
            f"in {content['budget_window']}",
            **{_PLACES[kind]: location for kind, location in content["files"].items()},
            "certificate": str(Path(content["files"]["public"]) / PAGE_NAME),
            "in a browser": "cloister page",
            "next": f"cloister review approve {outcome.release} --reason TEXT",
        },
    )


def _rows(content: dict[str, Any]) -> str:
    """Rows of the synthetic table; of several, those of each."""
    tables: dict[str, int] = content.get("tables", {})
    if len(tables) < 2:
        return f"{content['rows']:,}"
    return ", ".join(f"{rows:,} of {name}" for name, rows in tables.items())


def show_metrics(evaluation: AnyEvaluation) -> None:
    """The figures of an evaluation."""
    _show_figures(evaluation.to_dict())


def _ended(content: dict[str, Any]) -> str:
    earlier = content.get("earlier")
    return (
        "was finished by an earlier run of this command: nothing was charged now"
        if earlier
        else "is a candidate"
    )


def _show_figures(evaluation: dict[str, Any]) -> None:
    metrics = evaluation.get("headline", evaluation["metrics"])
    if metrics:
        rows = [
            (name.replace("_", " ").replace(".", ", "), value) for name, value in metrics.items()
        ]
        show_table("Utility", ("measure", "value"), rows, INTERNAL_NOTE)
    if evaluation.get("learning") and evaluation.get("truth"):
        synthetic, real = (evaluation[name]["mean_accuracy"] for name in ("learning", "truth"))
        say(f"Mean accuracy {synthetic:.3f}; trained on real rows {real:.3f}")


def show_stages(
    stages: Sequence[tuple[str, float | None, str]], total: float, budget: Budget, price: Budget
) -> None:
    """Stages at the delta of a plan, and what the account is charged."""
    rows = [
        *((name, NO_EPSILON if cost is None else cost, words) for name, cost, words in stages),
        ("sampling", 0.0, "drawing rows is post-processing"),
        ("all together", total, f"charged: epsilon {exact_text(price.epsilon)}"),
    ]
    accounted = "all stages are accounted for together: the total is not their sum"
    show_table(
        f"Privacy spend at delta {exact_text(budget.delta)}",
        _STAGE_HEADINGS,
        rows,
        accounted if budget.delta else "without a delta the epsilons of stages add up",
    )


def _amounts(content: dict[str, Any]) -> Budget:
    return Budget(Fraction(content["epsilon"]), Fraction(content["delta"]))


def _show_violations(content: dict[str, Any]) -> None:
    truth = {report["name"]: report["real_percent"] for report in content["internal"]["violations"]}
    rows = [
        (
            report["name"],
            "hard" if report["hard"] else "soft",
            report["violations"],
            percent(report["percent"]),
            percent(truth[report["name"]]) if report["name"] in truth else "-",
        )
        for report in content["violations"]
    ]
    if rows:
        headings = ("constraint", "kind", "violations", "of all", "in the real rows (internal)")
        show_table("Constraints in the synthetic table", headings, rows)


def show_certificate(home: Home, release: str, as_json: bool) -> None:
    """What a release promises and spent, its state, and the place of its page.

    Raises:
        InputError: there is no such release, or it has no certificate yet.
        VerificationError: the certificate was altered, or is another one than the ledger recorded.
    """
    from cloister.privacy.certificate.certificate import YAML_NAME
    from cloister.tasks.ledger.access import release_of
    from cloister.tasks.release.integrity import recorded_certificate
    from cloister.tasks.release.signing import decisions_on

    entry = release_of(home, release)
    state = entry.state.value
    folder = home.release(release) / "public"
    if not (folder / YAML_NAME).exists():
        raise InputError(
            f"release {release} is {entry.state.words} and has no certificate; run its command "
            "again to finish it"
        )
    certificate, decisions = recorded_certificate(folder, entry), decisions_on(entry, folder)
    if as_json:
        later = {"state": state, "decisions": decisions, "page": str(folder / PAGE_NAME)}
        show_json(certificate.model_dump(mode="json") | later)
        return
    _show_promise(certificate, entry.state.words)
    if decisions:
        show_table("Decisions", tuple(decisions[0]), [tuple(row.values()) for row in decisions])
    say(f"Page: {folder / PAGE_NAME}")


def _show_promise(certificate: Certificate, state: str) -> None:
    accounted = figure_above(certificate.guarantee.accounted.epsilon, 6)
    subject, guarantee, total = certificate.subject, certificate.guarantee, certificate.cumulative
    show_facts(
        f"Release {subject.id}",
        {
            "dataset": subject.dataset,
            "method": subject.method,
            "state": state,
            "rows": subject.rows,
            "private": guarantee.private,
            "epsilon": f"{guarantee.epsilon} (accounted {accounted})",
            "delta": guarantee.delta,
            "protects": f"{guarantee.unit}; {guarantee.relation_words}",
            "spent so far": f"{total.spent} of {total.cap} in {total.window}",
            **({"by the filter": total.filtered} if total.filtered else {}),
        },
    )
    for line in guarantee.meaning:
        say(f"  {line}")
    stages = [
        (stage.name, NO_EPSILON if stage.epsilon is None else stage.epsilon, stage.purpose)
        for stage in certificate.stages
    ]
    show_table("Stages", ("stage", "epsilon alone", "what for"), stages)
    rules = [
        (rule.name, "hard" if rule.hard else "soft", rule.violations, rule.rule)
        for rule in certificate.constraints
    ]
    if rules:
        headings = ("constraint", "kind", "violations", "rule")
        show_table("Constraints in the synthetic table", headings, rules)
