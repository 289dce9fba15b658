"""A pattern with too few keys for the rows is a public fact: refused before anything is charged."""

import pytest
from hospital import hospital

from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger


@pytest.mark.parametrize("command", ["plan", "spec check", "release"])
def test_999_keys_for_1000_rows_are_refused(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    spec = hospital().write(tmp_path)
    spec.write_text(spec.read_text().replace("R{000001..999999}", "R{000001..000999}"))
    assert run([*command.split(), str(spec)]) == 2
    said = capsys.readouterr().err
    assert "'row'" in said and "999 keys for 1,000 rows" in said and "widen the pattern" in said
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home")})
    assert not home.folder.exists() or not existing_ledger(home).releases()
