"""The reports of a release: written with it, found again, or made for an earlier version's.

Privacy: the page for analysts lies with the public files and is made of public facts alone; its
    twin lies with the internal evaluation, whose exact figures it holds.
"""

from __future__ import annotations

import json
from pathlib import Path

from cloister.errors import InputError, VerificationError
from cloister.models.storage import load_saved
from cloister.privacy.certificate.certificate import YAML_NAME, Certificate, read_certificate
from cloister.schema.relations import Database
from cloister.tasks.data.tables import read_in_blocks, read_synthetic
from cloister.tasks.home.files import digest_of, replace_file
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import release_of
from cloister.tasks.release.analyst_facts import link_facts, table_facts
from cloister.tasks.release.analyst_page import ExactFigures, ReleaseFacts, analyst_page
from cloister.tasks.release.integrity import recorded_certificate
from cloister.tasks.requests.resolved import PublicContext

REPORT_NAME = "report.html"
"""The page's file: beside the certificate for analysts, with the evaluation for reviewers."""


def write_reports(home: Home, release: str, certificate: Certificate) -> Path:
    """Write the page for analysts to the public files of a release, which are there; its file.

    The twin for reviewers goes to the internal ones, which hold the evaluation.

    Raises:
        StorageError, VerificationError: model or rows cannot be read, or are not what was saved.
    """
    folder = home.release(release)
    facts = released_facts(folder)
    internal = folder / "internal"
    evaluation = json.loads((internal / "evaluation.json").read_text(encoding="utf-8"))
    twin = analyst_page(certificate, facts, ExactFigures.of(evaluation))
    (internal / REPORT_NAME).write_text(twin, encoding="utf-8")
    report = folder / "public" / REPORT_NAME
    report.write_text(analyst_page(certificate, facts), encoding="utf-8")
    return report


def report_of(home: Home, what: str, out: Path | None) -> Path:
    """The page for analysts of a release, or of a folder of its public files; a copy at ``out``.

    Of a release of an earlier version, which has none, it is made at ``out``, by its model.

    Raises:
        InputError: there is no such release, or it has no page and nothing to make one of.
        StorageError, VerificationError: a file cannot be read or written, or was altered.
    """
    folder, certificate = _public_files(home, what)
    page, release = folder / REPORT_NAME, certificate.subject.id
    if out and (out.exists() or out.suffix != ".html"):
        raise InputError(f"{out}: give --out a new file that ends in .html")
    if REPORT_NAME not in certificate.artefacts:
        if out is None:
            raise InputError(
                f"release {release} was made without a report; add --out FILE, which gets one, "
                "made from its model"
            )
        text = analyst_page(certificate, released_facts(home.release(release)))
    elif not page.is_file() or digest_of(page) != certificate.artefacts[REPORT_NAME]:
        raise VerificationError(f"{page} is not the report that was released; see cloister verify")
    else:
        text = page.read_text(encoding="utf-8")
    if out is None:
        return page
    replace_file(out, lambda part: part.write_text(text, encoding="utf-8"))
    return out


def internal_report_of(home: Home, what: str) -> Path:
    """The page for reviewers of a release, by its id or the folder of its public files.

    Raises:
        InputError: there is no such release, or it has no such page.
        StorageError, VerificationError: its certificate cannot be read, or was altered.
    """
    release = _public_files(home, what)[1].subject.id
    page = home.release(release_of(home, release).id) / "internal" / REPORT_NAME
    if page.is_file():
        return page
    raise InputError(
        f"release {release} has no internal report: an earlier version made it, or it was deleted; "
        f"see cloister review show {release}"
    )


def _public_files(home: Home, what: str) -> tuple[Path, Certificate]:
    """The folder of public files that is meant, and the certificate in it."""
    if (given := Path(what)).exists():
        given = given if given.is_dir() else given.parent
        return given, read_certificate(given)
    entry = release_of(home, what)
    folder = home.release(entry.id) / "public"
    if not (folder / YAML_NAME).exists():
        raise InputError(
            f"release {what} is {entry.state.words} and has no certificate; run its command again "
            "to finish it"
        )
    return folder, recorded_certificate(folder, entry)


def released_facts(folder: Path) -> ReleaseFacts:
    """The facts of the release in a folder of a home, by its model and its released rows.

    Raises:
        StorageError, VerificationError: they cannot be read, or are not what was saved.
    """
    saved = load_saved(folder / "model")
    files = PublicContext(saved.spec, saved.task).files
    tables = {}
    for name, task in saved.task.tables.items():
        read = read_in_blocks if name in saved.model.samplers else read_synthetic
        tables[name] = read(folder / "public" / f"{files[name]}.parquet", task)
    released = Database(saved.task.schema, tables)
    return ReleaseFacts(table_facts(saved.task, saved.model, released), link_facts(released))
