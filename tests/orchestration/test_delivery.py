"""A finished release that was not reported is found by the same command, and only then."""

import json
import shutil

import pytest
from quick_release import quick_release

import cloister.flows.cli.reports
from cloister.errors import CloisterError
from cloister.flows.cli.app import run
from cloister.privacy.ledger import Ledger, State
from cloister.tasks.home import files
from cloister.tasks.ledger.access import existing_ledger


def late_imports():
    global cloister
    import cloister.flows.release
    import cloister.tasks.release.publish


def ledger_of(place) -> Ledger:
    found = existing_ledger(place.home)
    assert found is not None
    return found


def failing(*_: object) -> None:
    raise CloisterError("killed here")


@pytest.fixture
def alone(monkeypatch) -> None:
    """The release flow without the two tools that take most of its time."""
    monkeypatch.setattr(cloister.tasks.release.publish, "register_release", lambda *_: "")
    monkeypatch.setattr(cloister.tasks.release.publish, "version_release", lambda *_: None)


def test_killed_after_the_candidate_the_same_command_finds_the_release(
    place, prefect_server, alone, monkeypatch, capsys
):
    words = quick_release(place, "--json", "--out", str(place.folder / "out"))
    for module, name in [
        (cloister.flows.release, "deliver"),
        (cloister.flows.cli.reports, "show_outcome"),
        (Ledger, "deliver"),
    ]:
        with monkeypatch.context() as patched:
            patched.setattr(module, name, failing)
            assert run(words) == 1
        (held,) = ledger_of(place).releases()
        assert held.state == "candidate"
    capsys.readouterr()
    assert run(quick_release(place, "--rows", "17")) == 2
    assert held.id in (said := capsys.readouterr().err) and "--rows" in said
    shutil.rmtree(place.folder / "out")
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["release"], found["earlier"]) == (held.id, True)
    assert (place.folder / "out" / "manifest.json").is_file()
    (held,) = ledger_of(place).releases()
    assert held.delivered


def test_a_place_that_was_taken_after_the_charge_leads_to_another_at_no_charge(
    place, prefect_server, alone, monkeypatch, capsys
):
    """As where two releases with one ``--out`` run at once: the first that ends has it."""

    def taken(folder, out, release):
        out.mkdir(exist_ok=True)
        (out / "theirs").touch()
        files.copy_whole(folder, out, release)

    with monkeypatch.context() as patched:
        patched.setattr(cloister.tasks.release.publish, "copy_whole", taken)
        assert run(quick_release(place, "--out", str(place.folder / "out"))) == 2
    (held,) = ledger_of(place).releases()
    said = " ".join(capsys.readouterr().err.split())
    assert f"Release {held.id} is charged and kept" in said and "another --out" in said
    assert run(quick_release(place, "--out", str(place.folder / "another"))) == 0
    assert [release.id for release in ledger_of(place).releases()] == [held.id]
    assert (place.folder / "another" / "manifest.json").is_file()


@pytest.mark.slow
def test_a_finished_release_that_was_altered_is_not_handed_out(
    place, prefect_server, alone, monkeypatch, capsys
):
    with monkeypatch.context() as patched:
        patched.setattr(cloister.flows.cli.reports, "show_outcome", failing)
        assert run(quick_release(place)) == 1
    (held,) = ledger_of(place).releases()
    (place.home.release(held.id) / "public" / "synthetic.parquet").write_bytes(b"forged")
    capsys.readouterr()
    assert run(quick_release(place)) == 1
    assert "cloister verify" in capsys.readouterr().err
    ledger_of(place).advance(held.id, State.REJECTED, "officer", "forged")
    assert run(quick_release(place)) == 0
    assert run(quick_release(place)) == 0  # one that ended normally is made anew at a new charge
    assert len(ledger_of(place).releases()) == 3
