"""The flow that publishes an approved release: a run of its own, after a person's decision.

A run that paused for the approval would restart from its beginning. So the run of a release ends
when it awaits review, and what follows the approval is another flow.
"""

from __future__ import annotations

from prefect import flow

from cloister.flows.review import move_release
from cloister.privacy.ledger import State
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import flow_version
from cloister.tasks.stores.prefect_runs import step


@step("publish", "publish {release}")
def publish_approved(release: str, by: str, reason: str, home: Home) -> str:
    """Verify the release, then record that it is published; the state it has now.

    Raises:
        InputError: there is no such release, or it is not approved.
        VerificationError: the folder or the stores are not what was recorded; nothing is changed.
    """
    return move_release(home, release, State.PUBLISHED.value, by, reason)


@flow(
    name="publish",
    flow_run_name="publish {release}",
    version=flow_version(),
    retries=0,
    persist_result=False,
    log_prints=False,
)
def publish(release: str, by: str, reason: str) -> str:
    """Publish an approved release; the state it has now."""
    return publish_approved(release, by, reason, Home.current())
