"""The certificate of a release, as tables or JSON."""

from __future__ import annotations

from cloister.errors import InputError
from cloister.figures import figure_above
from cloister.flows.cli.console import say, show_facts, show_json, show_table
from cloister.flows.cli.reports import NO_EPSILON
from cloister.privacy.certificate.certificate import PAGE_NAME, YAML_NAME, Certificate
from cloister.tasks.home.home import Home
from cloister.tasks.ledger import release_of
from cloister.tasks.release.integrity import recorded_certificate


def show_certificate(home: Home, release: str, as_json: bool) -> None:
    """What a release promises and spent, its state, and the place of its page.

    Raises:
        InputError: there is no such release, or it has no certificate yet.
        VerificationError: the certificate was altered, or is another one than the ledger recorded.
    """
    held = release_of(home, release)
    state = held.state.value
    folder = home.release(release) / "public"
    if not (folder / YAML_NAME).exists():
        raise InputError(
            f"release {release} is {held.state.words} and has no certificate; run its command "
            "again to finish it"
        )
    certificate = recorded_certificate(folder, held)
    if as_json:
        show_json(
            certificate.model_dump(mode="json") | {"state": state, "page": str(folder / PAGE_NAME)}
        )
        return
    _show(certificate, held.state.words)
    say(f"Page: {folder / PAGE_NAME}")


def _show(certificate: Certificate, state: str) -> None:
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
        show_table(
            "Constraints in the synthetic table",
            ("constraint", "kind", "violations", "rule"),
            rules,
        )
