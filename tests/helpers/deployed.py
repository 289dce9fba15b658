"""Deployments on the server of the tests, and a budget that is used up."""

from fractions import Fraction

from cloister.privacy.ledger import Ledger, ReservationRequest

MONTHLY = "0 3 1 * *"


def registered() -> list:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return client.read_deployments()


def charged(place, per: str) -> None:
    """A granted budget, all of which a release holds."""
    place.home.prepare()
    ledger = Ledger.open(place.home.ledger)
    ledger.grant("clubs", "row", 4, "1e-5", per, "officer", "policy")
    price = {
        "epsilon": Fraction(4),
        "delta": Fraction(0),
        "events": {"type": "none"},
        "spend_id": "other",
    }
    about = {"method": "kamino", "spec_digest": "ab", "code_version": "1"}
    ledger.reserve(
        ReservationRequest(dataset="clubs", unit="row", relation="add_remove", **price, **about),
        "tester",
    )
