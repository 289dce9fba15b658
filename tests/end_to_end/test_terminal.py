"""A release on a terminal: something moves while it works, and the end says where everything is."""

import os
import pty
import re
import sys
from contextlib import suppress

import pytest
from quick_release import quick_release

from cloister.flows.cli import console
from cloister.flows.cli.app import run


def shown_by(words: list[str]) -> str:
    """What a command shows on a terminal of its own."""
    process, terminal = pty.fork()
    if not process:
        program = f"from cloister.flows.cli.app import main; main({words!r})"
        os.execv(sys.executable, [sys.executable, "-c", program])  # noqa: S606 - the same Python
    shown = b""
    with suppress(OSError):  # how Linux says that the other end is closed
        while part := os.read(terminal, 1 << 16):
            shown += part
    assert os.waitpid(process, 0)[1] == 0, shown[-2000:]
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()


@pytest.mark.slow
def test_on_a_terminal_the_end_names_the_certificate(place, monkeypatch):
    for name in [each for each in os.environ if each.startswith("PREFECT")]:
        monkeypatch.delenv(name)
    shown = shown_by(quick_release(place))
    (release,) = (place.home.folder / "releases").iterdir()
    end = re.sub(r"\s", "", shown.rpartition("is a candidate")[2])
    assert str(release / "public" / "certificate.html") in end
    assert "cloisterpage" in end and "working" not in end


def test_off_a_terminal_a_line_says_a_step_still_runs(place, prefect_server, monkeypatch, capsys):
    monkeypatch.setattr(console, "PULSE", 0.0)
    monkeypatch.setattr(console, "_LOOK", 0.01)
    assert run(quick_release(place)) == 0
    said = capsys.readouterr().err
    assert re.search(r"^\d\d:\d\d:\d\d working \d+ s$", said, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d record \d+ s$", said, re.MULTILINE)
    quiet = console.Lines(lambda event: pytest.fail(str(event)))
    monkeypatch.setattr(console, "PULSE", 60.0)
    quiet.pulse()
