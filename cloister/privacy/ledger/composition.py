"""What several releases cost together, read from the events that the ledger holds.

The ledger admits releases by the sum of their epsilons: a filter that holds even if each release is
chosen after seeing those before it. The figure here is the tight composition of the events
themselves. It holds for a schedule of releases that was fixed in advance, and is shown beside the
sum; it never admits a release.

Source: Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters" (arXiv 1605.08294), on why the
    two differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.accountants import Spend, spend
from cloister.privacy.events import compose, event_from_json
from cloister.privacy.ledger.records import Release


def together(releases: Iterable[Release], delta: Fraction) -> Spend | None:
    """What the events of releases under one relation cost at ``delta``.

    None if no accountant reads them all.
    """
    charged = [release for release in releases if release.state.charged]
    if not charged:
        return None
    events = compose(*(event_from_json(release.request.events) for release in charged))
    try:
        return spend(events, delta, charged[0].request.relation)
    except UnsupportedEvent:
        return None
