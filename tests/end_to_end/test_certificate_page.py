"""The page in a browser and on paper: it loads nothing, breaks no word, and answers its readers."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cloister.privacy.certificate.certificate import Runner
from cloister.privacy.certificate.page import page
from cloister.schema.spec import About


@pytest.fixture(scope="module", autouse=True)
def late_imports():
    global Basis, certify, declaring
    from bases import declaring

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
const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
const broken = [], range = document.createRange();
while (texts.nextNode()) {
  const text = texts.currentNode;
  for (const word of text.data.matchAll(/(?<!\\w)[A-Za-z]{2,24}(?!\\w)/g)) {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const parts = [...range.getClientRects()].filter(part => part.width > 0);
    if (new Set(parts.map(part => Math.round(part.top))).size > 1) broken.push(word[0]);
  }
}
document.body.dataset.probe = [wide.length, loaded, seen].join(' ');
document.body.dataset.broken = broken.join(' ');
</script>
"""


def stated(basis: Basis) -> Basis:
    """The basis with statements of a curator, in a spec that names a source of its constraints."""
    about = About(
        curator="Registry Office <b>&",
        curator_type="government",
        contact="data@registry.example",
        intended_use="Tests of software.\nNo decisions about persons.",
        region="Glenmoor",
    )
    runner = Runner(identity="anna@build", person="Anna", roles=("engineer",))
    return replace(declaring(basis, about=about), ran_by=runner)


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


def framed(text: str, width: int) -> str:
    """A page that shows another one at a width, which may be less than a window can have."""
    return (
        f"<iframe srcdoc='{html.escape(text)}' style='width: {width}px; height: 9000px; border: 0' "
        "onload='Object.assign(document.body.dataset, this.contentDocument.body.dataset)'></iframe>"
    )


def on_paper(text: str) -> str:
    """The page with the style that it has on paper, of which a sheet is 180 mm wide: 680 px."""
    assert "@media print" in text
    return text.replace("@media screen", "@media not all").replace("@media print", "@media all")


@pytest.mark.parametrize("width", [390, 680, 1280])
def test_no_word_is_broken(basis: Basis, tmp_path: Path, width: int):
    text = probed(page(certify(stated(basis))))
    text = on_paper(text) if width == 680 else text
    seen = browse(tmp_path, framed(text, width), "--window-size=1400,900", "--dump-dom")
    assert 'data-probe="0 0 99px"' in seen
    assert 'data-broken=""' in seen


def test_a_word_that_does_not_fit_is_noticed(basis: Basis, tmp_path: Path):
    narrow = page(certify(stated(basis))).replace("</style>", "td { max-width: 2rem }</style>")
    narrow = probed(narrow.replace("overflow-wrap: break-word", "word-break: break-all"))
    seen = browse(tmp_path, framed(narrow, 390), "--window-size=1400,900", "--dump-dom")
    assert "data-broken=" in seen
    assert 'data-broken=""' not in seen


def test_every_printed_sheet_names_the_release_and_its_number(basis: Basis, tmp_path: Path):
    if (reader := shutil.which("pdftotext")) is None:
        assert not os.environ.get("CI"), "the sheets are read by pdftotext; install poppler-utils"
        pytest.skip("no pdftotext on this machine")
    paper = tmp_path / "page.pdf"
    flags = (f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    browse(tmp_path, page(certify(stated(basis))), *flags)
    command = [reader, "-layout", str(paper), "-"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    sheets = text.removesuffix("\f").split("\f")
    assert len(sheets) > 2
    for number, sheet in enumerate(sheets, 1):
        last = sheet.rstrip().splitlines()[-1].split()
        assert last == ["Release", "r-0123456789", "Page", str(number), "of", str(len(sheets))]


QUESTIONS = {
    "who is protected": ("Protected", "one row of the table"),
    "how strongly": ("ε = 2", "factor of at most 7.39"),
    "what was spent before": ("Before this release", "this is the first charge"),
    "what is not protected": ("What is not protected", "approval on exact figures is itself a sel"),
    "who answers for it": ("Registry Office", "data@registry.example", "Anna", "engineer"),
    "who decided": ("approval.dsse.json", "cloister verify FOLDER --key house.pub"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_fresh_reader_finds_the_answer(basis: Basis, question: str):
    text = re.sub(r"<[^>]+>", "", page(certify(stated(basis))))
    for answer in QUESTIONS[question]:
        assert answer in text


def test_statements_come_first_and_are_escaped(basis: Basis):
    text = page(certify(stated(basis)))
    assert text.index("Registry Office &lt;b&gt;") < text.index("ε = 2")
    assert "<dt>Exploration of the data</dt>" not in text
    assert "Not stated in the spec:" in text
    assert (
        "exploration of the data" in text.partition("Not stated in the spec:")[2].partition(".")[0]
    )
    assert "<b>&" not in text


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
