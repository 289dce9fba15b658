"""The page of a run at the orchestrator: the content of the certificate, which is public."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.exceptions import MissingContextError, PrefectException
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled

from cloister.errors import BudgetExceeded
from cloister.privacy.certificate.certificate import PAGE_NAME, Certificate, read_certificate

DECLINED = "Declined"
"""Name of the state of a run whose price the budget does not hold."""


def decline_run(error: BudgetExceeded) -> Any:
    """The final state of a run that the ledger declined: a cancellation, at no charge."""
    note("declined: %s", error)
    return Cancelled(name=DECLINED, message=str(error), data=error)


def note(message: str, *values: object) -> None:
    """Write a line to the log of the run, or to that of this process outside of a run.

    Public values alone.
    """
    _logger().info(message, *values)


def note_warning(message: str, *values: object) -> None:
    """Write a warning where :func:`note` writes; public values alone."""
    _logger().warning(message, *values)


def _logger() -> Any:
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger(__name__)


def attach_certificate(public: Path) -> None:
    """Add spend, violations and a link to the certificate to the page of the run, if there is one.

    A server that rejects them fails no release.

    Privacy: all is read from the certificate, which is public.
    """
    if not flow_run.id:
        return
    certificate = read_certificate(public)
    try:
        _show(certificate, public / PAGE_NAME)
    except (PrefectException, httpx.HTTPError) as error:
        note(
            "the page of this run shows no certificate: the server failed (%s)",
            type(error).__name__,
        )


def _show(certificate: Certificate, page: Path) -> None:
    release = certificate.subject.id
    create_table_artifact(_spend(certificate), f"{release}-spend", _promise(certificate))
    create_table_artifact(
        _violations(certificate),
        f"{release}-violations",
        f"Constraints in the synthetic table of release {release}.",
    )
    create_link_artifact(
        page.absolute().as_uri(),
        "Certificate",
        f"{release}-certificate",
        f"The certificate of release {release}.",
    )


def _spend(certificate: Certificate) -> list[dict[str, Any]]:
    stages = [(stage.name, stage.purpose, stage.epsilon) for stage in certificate.stages]
    total = (
        "all together",
        "as accounted; what stages cost does not add up",
        certificate.guarantee.accounted.epsilon,
    )
    return [
        {"stage": name, "purpose": purpose, "epsilon": cost}
        for name, purpose, cost in [*stages, total]
    ]


def _violations(certificate: Certificate) -> list[dict[str, Any]]:
    return [
        {
            "constraint": found.name,
            "kind": "hard" if found.hard else "soft",
            "rule": found.rule,
            "violations": found.violations,
        }
        for found in certificate.constraints
    ]


def _promise(certificate: Certificate) -> str:
    subject, guarantee = certificate.subject, certificate.guarantee
    stain = "" if guarantee.private else "**NOT PRIVATE** (seeded noise). "
    stain += (
        "**NOT differentially private**: plausible deniability. " if certificate.deniable else ""
    )
    return (
        f"{stain}Release {subject.id} of {subject.dataset} by {subject.method}: epsilon "
        f"{guarantee.epsilon}, delta {guarantee.delta}, for {guarantee.unit}."
    )
