"""Seeded noise is no noise: it stains the ledger, the certificate and its page."""

import yaml
from quick_release import quick_release

from cloister.flows.cli.app import run
from cloister.tasks.ledger.access import open_ledger


def test_seeded_noise_stains_whatever_is_handed_on(prefect_server, place, seeded_noise):
    out = place.folder / "out"
    assert run(quick_release(place, "--out", str(out))) == 0
    (release,) = open_ledger(place.home).releases("clubs")
    assert "NOT PRIVATE" in release.request.stain
    assert "NOT PRIVATE" in yaml.dump(yaml.safe_load((out / "certificate.yaml").read_text()))
    assert "NOT PRIVATE" in (out / "certificate.html").read_text()
