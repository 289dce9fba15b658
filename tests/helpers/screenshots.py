"""Pictures of the page for docs/: a home of three demo releases, as a browser shows it.

Run in a checkout, with Chromium: python tests/helpers/screenshots.py [FOLDER]
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import Browser

CLOISTER = (sys.executable, "-c", "from cloister.flows.cli.app import main; main()")
PROJECT = Path(__file__).parents[2]


def main(folder: Path) -> None:
    """Write the pictures into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        os.environ |= {"CLOISTER_HOME": str(work / "home"), "PYTHONPATH": str(PROJECT)}
        newest = _releases(work)
        command = [*CLOISTER, "page", "--port", "0"]
        page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        browser = Browser(work / "profile")
        try:
            assert page.stdout
            _enter(browser, page.stdout.readline().strip())
            _pictures(browser, newest, folder)
            report = work / "home" / "releases" / newest / "public" / "report.html"
            report_pictures(browser, report, folder)
        finally:
            browser.close()
            page.terminate()


def _releases(work: Path) -> str:
    """Three releases of the demo table: published, rejected, waiting; the id of the last."""
    _run(sys.executable, "-m", "cloister.demo", str(work / "demo.csv"))
    text = (PROJECT / "data" / "specs" / "demo.yaml").read_text(encoding="utf-8")
    (work / "demo.yaml").write_text(text.replace("data/raw/demo.csv", str(work / "demo.csv")))
    home, known = work / "home" / "releases", set()
    quick = ("--method", "independent", "--evaluate", "quick")
    decided = (("1", quick, ("approve", "publish")), ("0.5", quick, ("reject",)), ("2", (), ()))
    for epsilon, options, moves in decided:
        _run(*CLOISTER, "release", str(work / "demo.yaml"), "--epsilon", epsilon, *options)
        (release,) = {each.name for each in home.iterdir()} - known
        known.add(release)
        for move in moves:
            reason = f"to {move}: the certificate was read"
            _run(*CLOISTER, "review", move, release, "--reason", reason)
    return release


def _enter(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.run("document.querySelector('form.decide button').click()")
    browser.loaded()


def _pictures(browser: Browser, release: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    base = browser.run("location.origin") + "/homes/home"
    sheets = {"overview": "", "account": "/accounts/demo", "release": f"/releases/{release}"}
    sheets["comparison"] = f"/releases/{release}/comparison"
    for name, path in sheets.items():
        browser.width(1100, 820)
        browser.open(base + path)
        browser.picture(folder / f"page-{name}.png", whole=False)
    browser.width(390, 820)
    browser.open(base)
    browser.picture(folder / "page-overview-narrow.png", whole=False)
    browser.width(900, 1100)
    browser.open(f"{base}/releases/{release}/certificate")
    browser.picture(folder / "certificate.png", whole=False)


def report_pictures(browser: Browser, report: Path, folder: Path) -> None:
    """Pictures of a report for analysts, at two widths."""
    for name, width, height in (("report", 1280, 1500), ("report-narrow", 400, 1500)):
        browser.width(width, height)
        browser.open(report.as_uri())
        browser.picture(folder / f"{name}.png", whole=False)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "docs" / "images")
