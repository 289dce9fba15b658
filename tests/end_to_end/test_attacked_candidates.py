"""A candidate attacked by its data: an internal page, a look in the ledger, and no charge."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from clubs import ROWS, members

from cloister.flows.cli.app import run
from cloister.schema.domain import Table
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table
from cloister.tasks.home.identity import identity
from cloister.tasks.ledger.access import open_ledger, release_of
from cloister.tasks.release.reports import risks_of
from cloister.tasks.requests.resolved import declared_context

WORDS = ["--reason", "small clubs"]


def spent(home):
    ledger = open_ledger(home)
    return [(each.request.epsilon, each.state) for each in ledger.releases("clubs")]


@pytest.fixture
def held_out(tmp_path, monkeypatch):
    """Fresh members of the same clubs, as a file."""
    rng = np.random.default_rng
    with monkeypatch.context() as patch:
        patch.setattr(np.random, "default_rng", lambda seed: rng(seed + 1))
        fresh = members()
    path = tmp_path / "fresh.csv"
    fresh.to_csv(path, index=False)
    return path


def test_a_look_is_recorded_charges_nothing_and_goes_with_the_decision(home, released, cloister):
    before = spent(home)
    page = home.release(released.id) / "internal" / "attacks.html"
    shown = cloister("review", "attack", released.id, *WORDS)
    assert shown == {"release": released.id, "page": str(page), "internal": True}
    text = page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    assert all(word in text for word in ("do not share", "selection on sensitive data", "small cl"))
    assert "No rows were held out" in text and "Membership" not in text
    assert "://" not in text
    assert spent(home) == before
    assert cloister("verify")["findings"] == []
    look, shown = release_of(home, released.id).looks
    assert len(shown.page) == 64 and not look.page
    assert shown.page != hashlib.sha256(page.read_bytes()).hexdigest()  # nobody tries figures by it
    assert f"entry {look.seq}" in text and look.reason == "small clubs"
    again, _ = cloister("review", "show", released.id)["release"]["looks"]
    assert again["seq"] == look.seq
    cloister("review", "approve", released.id, "--reason", "risk is small")
    assert not page.exists()
    decisions = cloister("report", released.id)["decisions"]
    assert [each["decision"].split()[0] for each in decisions] == ["attacked", "approved"]
    assert "selection" in decisions[0]["decision"]


def test_the_page_is_found_altered_only_by_a_look(home, released, cloister):
    page = home.release(released.id) / "internal" / "attacks.html"
    page.write_text("forged")
    assert run(["verify"]) == 1
    cloister("review", "attack", released.id, *WORDS)
    assert cloister("verify")["findings"] == []


def test_a_page_that_was_changed_after_the_look_is_named_and_nothing_approved(
    home, released, cloister, capsys, tmp_path
):
    """Also where it is kept after the decision that rests on it."""
    cloister("rules", "set", "--keep", "measures=30", "--reason", "an audit is due")
    page = home.release(released.id) / "internal" / "attacks.html"
    cloister("review", "attack", released.id, *WORDS)
    whole = page.read_bytes()
    (tmp_path / "page").write_bytes(whole)

    def named() -> bool:
        capsys.readouterr()
        assert run(["verify"]) == 1
        said = "".join(capsys.readouterr().out.split())
        return f"{page}:is" in said and "cloisterreviewattack" in said

    page.write_bytes(whole.replace(b"0", b"1"))
    assert named()
    assert run(["review", "approve", released.id, "--reason", "small risk"]) == 1
    page.unlink()
    assert named()
    page.symlink_to(tmp_path / "page")
    assert named()
    page.unlink()
    page.write_bytes(whole)
    cloister("review", "approve", released.id, "--reason", "small risk")
    assert cloister("verify")["findings"] == []
    page.write_bytes(whole + b" ")
    assert named()


def test_rows_held_out_say_what_is_leakage(home, released, cloister, held_out):
    shown = cloister("review", "attack", released.id, "--held-out", held_out, *WORDS)
    text = Path(shown["page"]).read_text()
    assert "Membership" in text and "leaked:" in text and "No rows were held out" not in text


def keep_lines(path: Path, number: int) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:number]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_text("name,club\nA,B\n"), "cannot be used"),
        (lambda path: keep_lines(path, 1), "has no rows"),
        (lambda path: keep_lines(path, 6), "has 5 rows as declared, and attacks need 20"),
    ],
)
def test_unusable_rows_held_out_leave_nothing(home, released, capsys, held_out, spoil, said):
    spoil(held_out)
    before = open_ledger(home).anchor()
    assert run(["review", "attack", released.id, "--held-out", str(held_out), *WORDS]) == 2
    error = capsys.readouterr().err
    assert said in error and str(held_out) in error and "othing was recorded" in error
    assert open_ledger(home).anchor() == before
    assert not (home.release(released.id) / "internal" / "attacks.html").exists()


def test_other_data_is_no_risk_of_the_release(home, released, capsys, other_data):
    """The look stays in the ledger, and there is no page."""
    assert run(["review", "attack", released.id, *WORDS]) == 2
    assert "is not what release" in capsys.readouterr().err
    assert not (home.release(released.id) / "internal" / "attacks.html").exists()


def test_only_who_decides_may_look_and_only_before(home, released, cloister, capsys, monkeypatch):
    me = identity()
    for name, role, who in (("Olga", "officer", me), ("Eve", "engineer", "eve")):
        words = ["--role", role, "--identity", who, "--reason", "mandate"]
        cloister("people", "set", name, *words)
    token = cloister("people", "token", "Eve", "--reason", "engineer")["token"]
    with monkeypatch.context() as patch:
        patch.setenv("CLOISTER_TOKEN", token)
        assert run(["review", "attack", released.id, *WORDS]) == 2
        assert "needs the role officer or reviewer" in capsys.readouterr().err
        assert run(["report", released.id, "--for", "reviewers"]) == 2
        assert "needs the role officer or reviewer" in capsys.readouterr().err
        assert cloister("review", "show", released.id)["release"]["internal"] is None
    assert cloister("review", "show", released.id)["release"]["internal"]
    assert run(["report", released.id, "--for", "reviewers"]) == 0
    assert release_of(home, released.id).looks == ()
    cloister("review", "reject", released.id, "--reason", "draft")
    assert run(["review", "attack", released.id, *WORDS]) == 2
    assert "only a candidate" in capsys.readouterr().err
    assert release_of(home, released.id).looks == ()


@pytest.fixture
def tables(place):
    context = declared_context(load_spec(place.spec), ROWS).only
    real = read_table(context.spec, context.task.domain, None)[0]
    return real.take(slice(0, 700)), real.take(slice(700, 1400)), real.take(slice(1400, 2000))


def test_rows_that_are_the_data_are_found(tables):
    fitted, held_out, fresh = tables
    figures = {
        name: {risk.attack: risk for risk in risks_of(fitted, shown, held_out)}
        for name, shown in (("copies", Table.concatenate([fitted])), ("fresh", fresh))
    }
    areas = {
        name: float(risks["Membership, area under the ROC curve"].shown)
        for name, risks in figures.items()
    }
    assert areas["copies"] > 0.8 and abs(areas["fresh"] - 0.5) < 0.06
    assert figures["copies"]["Synthetic rows that equal a real row"].shown == "100.00%"
    singled = figures["copies"]["Descriptions that fit one real row"]
    assert float(singled.shown[:-1]) > float(singled.beside[:-1]) + 20


def test_few_rows_are_not_attacked(tables):
    fitted, held_out, _ = tables
    assert list(risks_of(fitted, held_out.take(slice(0, 10)), held_out)) == []
