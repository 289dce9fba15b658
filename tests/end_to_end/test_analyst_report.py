"""The report of a release: public for analysts, of public facts alone; internal for reviewers."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
from browser import Browser, require_browser

from cloister.flows.cli.app import run
from cloister.privacy.certificate.certificate import read_certificate
from cloister.privacy.certificate.manifest import verify_folder
from cloister.tasks.release.analyst_columns import ColumnFacts, Group
from cloister.tasks.release.analyst_facts import KnownLoss, Pair, TableFacts
from cloister.tasks.release.analyst_page import ReleaseFacts, analyst_page
from cloister.tasks.release.reports import released_facts


def late_imports():
    global certify, declaring
    from bases import declaring

    from cloister.tasks.release.certify import certify


OLD = Path(__file__).parents[1] / "compatibility" / "home-0.2.tar.gz"


def test_a_release_has_its_report_and_is_verified_with_it(released, cloister, own, capsys):
    folder = own / "home" / "releases" / released.id
    page = folder / "public" / "report.html"
    assert cloister("report", released.id, "--for", "analysts")["page"] == str(page)
    assert verify_folder(folder / "public") == []
    assert page.read_bytes() == (own / "out" / "report.html").read_bytes()
    page.write_text(page.read_text() + " ")
    assert run(["report", released.id, "--for", "analysts"]) == 1
    assert run(["verify", released.id]) == 1
    for what in ("r-0000000000", "nowhere/"):
        capsys.readouterr()
        assert run(["report", what, "--for", "analysts"]) == 2
        assert "here is no release" in capsys.readouterr().err


def test_the_page_is_made_of_public_facts_alone(released, tmp_path, monkeypatch):
    """Model, certificate and released rows give it, where neither data nor home is."""
    for name in ("model", "public"):
        shutil.copytree(released.folder / name, tmp_path / name)
    (tmp_path / "public" / "report.html").unlink()
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    made = analyst_page(read_certificate(tmp_path / "public"), released_facts(tmp_path))
    assert made == (released.folder / "public" / "report.html").read_text(encoding="utf-8")


def test_a_folder_that_was_handed_on_needs_no_home(released, own, cloister, monkeypatch, tmp_path):
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "none"))
    folder, copy = own / "out", tmp_path / "copy.html"
    words = ("report", folder, "--for", "analysts")
    assert cloister(*words)["page"] == str(folder / "report.html")
    assert cloister(*words, "--out", copy)["page"] == str(copy)
    assert copy.read_bytes() == (folder / "report.html").read_bytes()
    assert run(["report", str(folder), "--for", "analysts", "--out", str(copy)]) == 2
    assert run(["report", str(folder), "--for", "reviewers"]) == 2


def test_the_internal_twin_never_leaves_the_home(released, own, cloister, capsys):
    folder = own / "home" / "releases" / released.id
    page = folder / "internal" / "report.html"
    assert cloister("report", released.id, "--for", "reviewers")["page"] == str(page)
    text = page.read_text(encoding="utf-8")
    assert "INTERNAL" in text
    assert "Exact distance" in text
    for public in (folder / "public", own / "out"):
        written = (public / "report.html").read_text(encoding="utf-8")
        assert "INTERNAL" not in written
        assert "Exact" not in written
    assert run(["report", released.id, "--for", "reviewers", "--out", str(own / "r.html")]) == 2
    assert "stays in the home" in capsys.readouterr().err
    assert not (own / "r.html").exists()


def test_the_page_answers_what_an_analyst_asks(released, own):
    text = (own / "out" / "report.html").read_text(encoding="utf-8")
    certificate = read_certificate(own / "out")
    for column in certificate.attributes:
        assert column.name in text
    for rule in certificate.constraints:
        assert rule.name in text
    for said in ("How far to trust it", "a group needs", "Known losses", "Data dictionary", "Cite"):
        assert said in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_ugly_names_fit_the_window_and_nothing_is_loaded(basis, tmp_path):
    name = '<b>a&"' + "long_name " * 12 + "x" * 90
    attributes = {name: basis.spec.attributes["since"], **basis.spec.attributes}
    certificate = certify(declaring(basis, attributes=attributes))
    text = analyst_page(certificate, ReleaseFacts((ugly_table(name),)))
    assert "<b>a&" not in text
    assert "<script" not in text
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    require_browser()
    browser = Browser(tmp_path / "profile")
    try:
        for width in (400, 1280):
            browser.width(width)
            browser.open((tmp_path / "page.html").as_uri())
            browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("performance.getEntriesByType('resource').length") == 0
        assert not browser.violations()
    finally:
        browser.close()


def ugly_table(name: str) -> TableFacts:
    """A number and a list of one hostile name, as facts of a table."""
    ranges = [Group(f"{n} to {n + 9}", 0.1, 0.05, 0.15, (n, n + 10)) for n in range(0, 100, 10)]
    values = [Group(f"{name} {n}", 0.25, 0.2, 0.3) for n in range(4)]
    columns = (
        ColumnFacts(name, tuple(ranges), (), ("1", "2", "3"), (100, 300), ("4", "3", "5")),
        ColumnFacts("since", tuple(values), (Group("missing", 0.1),), (), ()),
    )
    pair = Pair(name, "since", 0.5, -0.5, True)
    strengths = np.array([[1, 0.5], [0.5, 1]])
    counted = frozenset([frozenset((name, "since"))])
    loss = KnownLoss("Related by ranges.", tuple(f"{name}{n}" for n in range(20)))
    return TableFacts(
        *("t", 1_000, columns, (name, "since"), strengths, (pair,), counted, (1, 2), (loss,))
    )


def test_a_release_of_an_earlier_version_gets_one_from_its_model(tmp_path, monkeypatch, capsys):
    home = tmp_path / "home"
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    monkeypatch.setenv("CLOISTER_HOME", str(home))
    release = next(path.name for path in (home / "releases").iterdir() if (path / "model").is_dir())
    assert run(["report", release, "--for", "analysts"]) == 2
    assert "--out FILE" in capsys.readouterr().err
    out = tmp_path / "made.html"
    assert run(["report", release, "--for", "analysts", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == str(out)
    assert release in out.read_text(encoding="utf-8")
    assert run(["report", release, "--for", "reviewers"]) == 2
    assert "no internal report" in capsys.readouterr().err
