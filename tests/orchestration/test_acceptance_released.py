"""Releases whose rows must meet criteria: met, never met, killed between tries, refused."""

import json
from pathlib import Path

import pytest
from quick_release import quick_release

from cloister.errors import CloisterError
from cloister.flows.cli.app import run
from cloister.privacy.certificate.certificate import read_certificate
from cloister.privacy.door.journal_format import JOURNAL_NAME
from cloister.privacy.ledger import State
from cloister.tasks.data import tables
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.verify import verify_records

LOOSE = "{marginal: [home region, member], largest: 0.9}"
LINE = "{regression: {target: income, on: [age]}, largest: LARGEST}"
NEVER = "{regression: {target: member, on: [age]}, largest: 0.02}"
"""The slope is 0.37, and 0 of independent columns; its noise has a deviation of about 0.01."""


def accept(place, *criteria: str, tries: int = 3) -> None:
    """Declare acceptance criteria of the clubs."""
    block = f"acceptance: {{share: 0.5, tries: {tries}, criteria: [{', '.join(criteria)}]}}"
    place.edit("delta: 1e-6}", f"delta: 1e-6, {block}}}")


def released(place, capsys, *words: str):
    """Release the clubs; the outcome, the certificate and the page."""
    capsys.readouterr()
    assert run(quick_release(place, "--json", *words)) == 0, capsys.readouterr().err
    outcome = json.loads(capsys.readouterr().out)
    public = Path(outcome["files"]["public"])
    return outcome, read_certificate(public), (public / "certificate.html").read_text("utf-8")


def answers(place) -> int:
    (release,) = existing_ledger(place.home).releases()
    return release.seal.position


def test_rows_that_meet_their_criteria_say_so(place, prefect_server, capsys):
    accept(place, LOOSE, LINE.replace("LARGEST", "10"))
    assert run(["plan", *quick_release(place)[1:-2], "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [stage["name"] for stage in plan["stages"]] == ["acceptance criteria", "tries"]
    assert 0.9 < plan["accounted_epsilon"] <= 1
    outcome, certificate, page = released(place, capsys)
    accepted = certificate.acceptance
    assert accepted.met and accepted.tries == 3
    assert [each.name for each in accepted.criteria] == [
        "marginal of home region, member",
        "regression of income on age",
    ]
    assert all(0 < each.error < each.largest for each in accepted.criteria)
    assert outcome["charged"] == {"epsilon": "1", "delta": "0"} and not outcome["warnings"]
    assert "Acceptance criteria: met" in page and "private selection" in page
    assert any("itself a selection" in each for each in certificate.unprotected)
    assert existing_ledger(place.home).budget("clubs", "row").spent == 1
    assert answers(place) == 1 + 2 + 3 * 5  # the secret number, two tables, five columns a try
    assert verify_records(place.home, None)[1] == []


def test_rows_that_never_meet_them_are_delivered_and_say_so(place, prefect_server, capsys):
    accept(place, NEVER, tries=2)
    outcome, certificate, page = released(place, capsys)
    (missed,) = certificate.acceptance.criteria
    assert not certificate.acceptance.met and missed.error > missed.largest
    assert any("acceptance criterion not met" in each for each in outcome["warnings"])
    assert any("acceptance criterion not met" in each for each in certificate.limitations)
    assert "Acceptance criteria: NOT MET" in page
    (release,) = existing_ledger(place.home).releases()
    assert release.state is State.CANDIDATE
    assert answers(place) == 1 + 1 + 2 * 5


def test_a_release_ended_between_tries_goes_on_with_the_same_answers(
    place, prefect_server, monkeypatch
):
    accept(place, NEVER)
    drawn, draw = [], tables.draw_tables

    def ended(*given):
        drawn.append(given)
        if len(drawn) == 2:
            raise CloisterError("ended here")
        return draw(*given)

    monkeypatch.setattr(tables, "draw_tables", ended)
    held, positions = b"", []
    for code in (1, 0):
        assert run(quick_release(place)) == code
        journal = next((place.home.folder / "journals").rglob(JOURNAL_NAME)).read_bytes()
        assert journal.startswith(held) and len(journal) > len(held)
        held = journal
        positions.append(existing_ledger(place.home).releases()[0].runs[-1].position)
    assert positions == [0, 12]  # where each run began: before, and after the fit of the second try
    (release,) = existing_ledger(place.home).releases()
    assert release.seal.position == 17
    assert existing_ledger(place.home).budget("clubs", "row").spent == 1
    assert verify_records(place.home, None)[1] == []


DENIABLE = ("--method", "deniability", "--epsilon", "900", "--rows", "1")


@pytest.mark.parametrize(
    ("criterion", "said", "words"),
    [
        ("{marginal: [height], largest: 0.1}", "'height' is no attribute", ()),
        ("{marginal: [home region, home region], largest: 0.1}", "twice", ()),
        ("{marginal: [age, income, capital], largest: 0.01}", "noise alone makes an error", ()),
        ("{regression: {target: age, on: [capital]}, largest: 1}", "'capital' is categorical", ()),
        ("{largest: 0.1}", "marginal or of a regression", ()),
        (
            LINE.replace("LARGEST", "1000"),
            "fewer tries",
            ("--method", "mixture", "--epsilon", "0.001"),
        ),
        (LOOSE, "reads disjoint parts", DENIABLE),
    ],
)
def test_what_cannot_be_measured_is_refused_uncharged(place, capsys, criterion, said, words):
    accept(place, criterion)
    assert run(["plan", str(place.spec), *words]) == 2
    assert said in capsys.readouterr().err
