"""The certificate says what was audited of its code and method, or that nothing was."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloister.privacy.certificate.certificate import AuditRecord, Certificate
from cloister.privacy.certificate.page import page
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version


def late_imports():
    global audit_record, certify
    from cloister.tasks.release.certify import audit_record, certify


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "audits").mkdir()
    return Home.current({"CLOISTER_HOME": str(tmp_path)})


def kept(home: Home, name: str, **changed) -> None:
    shown = {"trials": 1_000, "mu_low": 0.1, "p_value": 0.5}
    content = {
        "attack": {"method": "mixture", "epsilon": changed.pop("epsilon", "1")},
        "claimed": 0.5,
        "shown": {name: changed.pop(name, figure) for name, figure in shown.items()},
        "level": 0.01,
        "code": code_version(),
        "date": "2026-11-26",
    }
    (home.folder / "audits" / f"{name}.json").write_text(json.dumps(content | changed))


def test_the_nearest_of_all_attacks_by_this_code_is_told(home):
    kept(home, "far", epsilon="4")
    kept(home, "near", mu_low=0.4567, date="2026-11-27")
    kept(home, "old", mu_low=0.49, code="0.1.0+0123456789abcdef")
    record = audit_record("mixture", home)
    figures = {"epsilon": "1", "shown": "0.457", "claimed": "0.5", "alarm": False}
    assert record == AuditRecord(date="2026-11-27", attacks=2, releases=2_000, **figures)


def test_without_an_audit_of_this_method_the_page_says_so(home, basis):
    kept(home, "one")
    assert audit_record("kamino", home) is None
    assert audit_record("mixture", Home.current({"CLOISTER_HOME": "/nowhere"})) is None
    certificate = certify(basis)
    assert "audit" not in certificate.to_yaml()
    assert "<dt>Audit</dt><dd>None of this code and method is kept" in page(certificate)


@pytest.mark.parametrize("alarm", [False, True])
def test_the_words_do_not_oversell(home, basis, alarm):
    kept(home, "one", p_value=0.004 if alarm else 0.006)
    kept(home, "two")  # of two attacks each counts at half the level
    software = basis.software.model_copy(update={"audit": audit_record("mixture", home)})
    certificate = certify(replace(basis, software=software))
    assert Certificate.from_yaml(certificate.to_yaml()) == certificate
    text = " ".join(page(certificate).split())
    assert "made for it" in text and "2026-11-26" in text
    assert ("more was shown than was claimed.</strong>" in text) is alarm
    assert ("does not prove that there is none" in text) is not alarm
