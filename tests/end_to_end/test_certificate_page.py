"""The page in a browser and on paper: it loads nothing, breaks no word, and answers its readers."""

import html
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser

from cloister.privacy.certificate.certificate import Runner
from cloister.privacy.certificate.page import page
from cloister.schema.spec import About


def late_imports():
    global Basis, certify, declaring
    from bases import declaring

    from cloister.tasks.release.basis import Basis
    from cloister.tasks.release.certify import certify


PROBE = """
document.fonts.ready.then(() => {
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
return [wide.length, loaded, seen, broken.join(' ')];
})
"""
SOUND = [0, 0, "99px"]


def stated(basis):
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


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield opened
    opened.close()


def probed(browser: Browser, tmp_path: Path, text: str, width: int = 1280) -> list:
    """Elements beyond the window, files that were loaded, a radius, and the words that broke."""
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    browser.width(width)
    browser.open((tmp_path / "page.html").as_uri())
    return browser.run(PROBE)


@pytest.mark.parametrize("width", [390, 600, 1280])
def test_the_page_fits_the_window_loads_nothing_and_breaks_no_word(browser, basis, tmp_path, width):
    assert probed(browser, tmp_path, page(certify(stated(basis))), width) == [*SOUND, ""]


def test_a_word_that_does_not_fit_is_noticed(browser, basis, tmp_path: Path):
    narrow = page(certify(stated(basis))).replace("</style>", "td { max-width: 2rem }</style>")
    narrow = narrow.replace("overflow-wrap: break-word", "word-break: break-all")
    assert probed(browser, tmp_path, narrow, 390)[-1]


def test_every_printed_sheet_names_the_release_and_its_number_and_breaks_no_word(
    browser, basis, tmp_path: Path
):
    if (reader := shutil.which("pdftotext")) is None:
        assert not os.environ.get("CI"), "the sheets are read by pdftotext; install poppler-utils"
        pytest.skip("no pdftotext on this machine")
    text = page(certify(stated(replace(basis, secure=False))))
    probed(browser, tmp_path, text)
    browser.paper(paper := tmp_path / "page.pdf")
    command = [reader, "-layout", str(paper), "-"]
    read = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    sheets = read.removesuffix("\f").split("\f")
    assert len(sheets) > 2
    for number, sheet in enumerate(sheets, 1):
        last = sheet.rstrip().splitlines()[-1].split()
        assert last == ["Release", "r-0123456789", "Page", str(number), "of", str(len(sheets))]
    unseen = r"<style.*?</style>|<details.*?</details>|<[^>]+>"
    shown = re.sub(unseen, " ", text.replace("<wbr>", ""), flags=re.DOTALL)
    words, printed = (
        set(re.findall(r"(?<!\w)[a-z]{2,24}(?!\w)", each.lower()))
        for each in (html.unescape(shown), read)
    )
    assert words <= printed


def test_long_names_do_not_break_the_page(browser, basis, tmp_path: Path):
    attributes = {"a" * 200: basis.spec.attributes["since"], **basis.spec.attributes}
    text = page(certify(declaring(basis, attributes=attributes)))
    assert probed(browser, tmp_path, text)[:3] == SOUND


QUESTIONS = {
    "who is protected": ("Protected", "one row of the table"),
    "how strongly": ("ε = 2", "factor of at most 7.39", "δ = 1e-5", "Differentially private"),
    "of what": ("r-0123456789", "town-state"),
    "what was spent before": ("Before this release", "this is the first charge"),
    "what is not protected": ("What is not protected", "approval on exact figures is itself a sel"),
    "who answers for it": ("Registry Office", "data@registry.example", "Anna", "engineer"),
    "who decided": ("approval.dsse.json", "cloister verify FOLDER --key house.pub"),
}


def test_a_fresh_reader_finds_the_answers_and_statements_come_first(basis):
    text = page(certify(stated(basis)))
    shown = re.sub(r"<[^>]+>", "", text)
    for question, answers in QUESTIONS.items():
        for answer in answers:
            assert answer in shown, question
    assert text.index("Registry Office &lt;b&gt;") < text.index("ε = 2")
    assert "<dt>Exploration of the data</dt>" not in text
    missing = text.partition("Not stated in the spec:")[2].partition(".")[0]
    assert "exploration of the data" in missing
    assert "<b>&" not in text
