"""The page in a browser: it loads nothing, overflows nothing, and shows what an officer needs."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bases import declaring

from cloister.privacy.certificate.page import page
from cloister.tasks.release.basis import Basis
from cloister.tasks.release.certify import certify

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=2000",
]

PROBE = """
<script>
const wide = [...document.querySelectorAll('main *')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1);
const seen = getComputedStyle(document.querySelector('.badge')).borderTopLeftRadius;
const loaded = performance.getEntriesByType('resource').length;
document.body.dataset.probe = [wide.length, loaded, seen].join(' ');
</script>
"""


@pytest.fixture(scope="module", autouse=True)
def _browser():
    if BROWSER is None:
        assert not os.environ.get("CI"), "the page is tested in Chromium; install it"
        pytest.skip("no Chromium on this machine")


def browse(tmp_path: Path, text: str, *flags: str) -> str:
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    command = [
        BROWSER,
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        *flags,
        (tmp_path / "page.html").as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def probed(text: str) -> str:
    """The page with a probe in it, which its own policy would not run."""
    return text.replace("default-src 'none'", "script-src 'unsafe-inline'").replace(
        "</body>", PROBE + "</body>"
    )


@pytest.mark.parametrize("width", [1200, 600])
def test_the_page_fits_the_window_and_loads_nothing(basis: Basis, tmp_path: Path, width: int):
    seen = browse(
        tmp_path, probed(page(certify(basis))), f"--window-size={width},900", "--dump-dom"
    )
    assert 'data-probe="0 0 99px"' in seen


def test_the_page_shows_what_an_officer_looks_for(basis: Basis, tmp_path: Path):
    seen = browse(tmp_path, page(certify(basis)), "--dump-dom")
    for text in (
        "ε = 2",
        "δ = 1e-5",
        "r-0123456789",
        "Differentially private",
        "town-state",
        "cloister verify",
    ):
        assert text in seen


def test_long_names_do_not_break_the_page(basis: Basis, tmp_path: Path):
    name = "a" * 200
    attributes = {name: basis.spec.attributes["since"], **basis.spec.attributes}
    seen = browse(
        tmp_path,
        probed(page(certify(declaring(basis, attributes=attributes)))),
        "--window-size=1200,900",
        "--dump-dom",
    )
    assert 'data-probe="0 0 99px"' in seen


def test_the_page_prints(basis: Basis, tmp_path: Path):
    paper = tmp_path / "page.pdf"
    browse(tmp_path, page(certify(replace(basis, secure=False))), f"--print-to-pdf={paper}")
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 20_000
