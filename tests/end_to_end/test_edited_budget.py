"""A spec that declares another budget than was granted is told so, and changes nothing."""

import json

import pytest

from cloister.flows.cli.app import run
from cloister.privacy.ledger import Account
from cloister.tasks.ledger.access import open_ledger

TOLD = "declares a budget of"


@pytest.mark.parametrize("command", ["plan", "spec check", "release"])
def test_an_edited_budget_is_told_in_one_line_and_the_granted_one_holds(place, capsys, command):
    place.data.unlink()  # so that a release ends before it asks for anything
    words = [*command.split(), str(place.spec)]
    run(words)
    assert TOLD not in capsys.readouterr().err
    ledger = open_ledger(place.home)
    ledger.open_account(Account("clubs", "row", "add_remove"), "officer", "register")
    ledger.grant("clubs", "row", 3, "1e-4", "year", "officer", "policy")
    before = ledger.entries()
    run(words)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count(TOLD) == 1
    assert "account 'clubs' was granted epsilon 3, delta 0.0001 per year, which holds" in said
    for words, told in (("plan", "warnings"), ("spec check", "budget")):
        assert run([*words.split(), str(place.spec), "--json"]) == 0  # programs get it too
        assert TOLD in json.loads(capsys.readouterr().out)[told][-1]
    assert ledger.entries() == before
    assert ledger.budget("clubs", "row").budget.epsilon == 3
