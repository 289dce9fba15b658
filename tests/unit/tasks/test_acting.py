"""Who acts is the user of the system, whatever the environment or an option says."""

import pytest

from cloister.flows.cli.options import acting, user


def test_no_variable_changes_who_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    me = user()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "ceo")
    assert user() == me
    assert acting("ceo") == f"{me} on behalf of ceo"
    assert acting(me) == acting("") == me
