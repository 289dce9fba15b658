"""The reports of a release: written with it, found again, or made for an earlier version's.

And a candidate attacked by its data, for whoever decides on it.

Privacy: the page for analysts lies with the public files and is made of public facts alone; its
    twin lies with the internal evaluation, whose exact figures it holds. The page of attacks is of
    real rows without noise, lies there and is deleted with them. A look neither spends nor claims
    anything; a decision after it is a selection, which the ledger, the certificate and the page
    say. The ledger has it before a row is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, Self

from cloister.errors import InputError, NotPermitted, VerificationError
from cloister.evaluation import attacks
from cloister.figures import count_of
from cloister.models.storage import load_saved
from cloister.privacy.certificate.certificate import YAML_NAME, Certificate, read_certificate
from cloister.privacy.certificate.page import render
from cloister.privacy.ledger.governance import record_look
from cloister.schema.domain import Table
from cloister.schema.relations import Database
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.data.tables import read_in_blocks, read_synthetic
from cloister.tasks.home.files import digest_of, replace_file
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger, release_of
from cloister.tasks.ledger.people import looking_problem
from cloister.tasks.release.analyst_facts import link_facts, table_facts
from cloister.tasks.release.analyst_page import ExactFigures, ReleaseFacts, analyst_page
from cloister.tasks.release.comparison import table_of
from cloister.tasks.release.integrity import recorded_certificate
from cloister.tasks.release.kept_files import ATTACKS_NAME, keyed_page_digest
from cloister.tasks.release.kept_request import kept_request
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of

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


def internal_report_of(home: Home, what: str, by: str) -> Path:
    """The page for reviewers of a release, by its id or the folder of its public files.

    Raises:
        InputError: there is no such release, or it has no such page.
        NotPermitted: ``by`` may not see exact figures.
        StorageError, VerificationError: its certificate cannot be read, or was altered.
    """
    if problem := looking_problem(home, by):
        raise NotPermitted(problem)
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
    names = PublicContext(saved.spec, saved.task).files
    tables = {}
    for name, task in saved.task.tables.items():
        read = read_in_blocks if name in saved.model.samplers else read_synthetic
        tables[name] = read(folder / "public" / f"{names[name]}.parquet", task)
    released = Database(saved.task.schema, tables)
    return ReleaseFacts(table_facts(saved.task, saved.model, released), link_facts(released))


class Risk(NamedTuple):
    """What an attack shows of a release, what it is compared with, and what that means."""

    attack: str
    shown: str
    beside: str
    meaning: str


@dataclass(frozen=True)
class CandidateAttack:
    """An attack on a candidate by its data; ``seq`` is the ledger's entry of the look."""

    home: Home
    release: str
    seq: int
    request: ResolvedRequest
    held_out: Table | None

    @classmethod
    def begin(cls, home: Home, release: str, held_out: Path | None, by: str, reason: str) -> Self:
        """Check all that can be checked without the data, and record the look.

        ``held_out`` is a file of real rows of the same population that were not in the data.

        Raises:
            InputError: it is no candidate, its spec is not the one that it was made by, or the rows
                held out cannot be used. Nothing is recorded.
            NotPermitted: ``by`` may not decide on it. No row of the data is read.
            StorageError, VerificationError: a file cannot be read, or was altered.
        """
        entry = release_of(home, release)
        folder = home.release(entry.id)
        recorded_certificate(folder / "public", entry)
        request = kept_request(home, entry.id)
        if spec_digest(load_spec(request.spec)) != entry.request.spec_digest:
            raise InputError(
                f"{request.spec} is not the spec that release {release} was made by; put that one "
                "back"
            )
        apart = _rows_held_out(public_context_of(request), held_out) if held_out else None
        seq = record_look(open_ledger(home), entry.id, by, reason).seq
        return cls(home, entry.id, seq, request, apart)

    def write_page(self) -> Path:
        """Read the data again, attack the candidate, and write the internal page; its file.

        The ledger gets a keyed digest of the page first.

        Raises:
            InputError: the data are not those that it read, or it was decided meanwhile.
            StorageError, VerificationError: a file cannot be read or written, or was altered.
        """
        entry, folder = release_of(self.home, self.release), self.home.release(self.release)
        certificate = recorded_certificate(folder / "public", entry)
        context = public_context_of(self.request)
        real = _read_again(self.request, entry.id, entry.evidence["data"], self.home)
        risks = {}
        for name, task in context.task.tables.items():
            rows = read_in_blocks(folder / "public" / f"{context.files[name]}.parquet", task)
            risks[name] = list(risks_of(real.tables[name], rows, self.held_out))
        page = folder / "internal" / ATTACKS_NAME
        source = files("cloister.tasks.release").joinpath("attacks.html").read_text("utf-8")
        facts: dict[str, Any] = {
            "look": next(look for look in entry.looks if look.seq == self.seq),
            "risks": risks,
            "held_out": self.held_out is not None,
            "caveat": attacks.CAVEAT,
        }
        look, text = facts["look"], render(source, c=certificate, **facts).encode()
        digest = keyed_page_digest(text, self.release, self.home)
        record_look(open_ledger(self.home), self.release, look.by, look.reason, digest)
        replace_file(page, lambda part: part.write_bytes(text))
        return page


def _rows_held_out(context: PublicContext, file: Path) -> Table:
    """The rows of a file, which are as declared and enough to attack.

    Raises:
        InputError: they are not; says what to do.
    """
    table = context.only
    try:
        rows = table_of(table, file)
    except InputError as error:
        raise InputError(
            f"--held-out {file} cannot be used: {error}. It should have the columns of the data "
            "that were released; nothing was recorded"
        ) from None
    if rows.rows < attacks.FEWEST_ATTACK_ROWS:
        raise InputError(
            f"--held-out {file} has {count_of(rows.rows, 'row')} as declared, and attacks need "
            f"{attacks.FEWEST_ATTACK_ROWS}; give more, or leave it out. Nothing was recorded"
        )
    return rows


def _read_again(request: ResolvedRequest, release: str, digest: str, home: Home) -> Database:
    """The rows that a release read.

    Raises:
        InputError: the data is other by now.
    """
    source = TablesSource.fitting(request, plan_of(request))
    database, digests = source.read_again(release, request, home)
    if digests.data != digest:
        raise InputError(
            f"the data is not what release {release} read: what was attacked would be no risk of "
            "it; give the same data back, or decide without"
        )
    return database


def risks_of(real: Table, synthetic: Table, held_out: Table | None) -> Iterator[Risk]:
    """What attacks on synthetic rows show by the real ones; nothing of too few rows.

    Privacy: exact figures of real rows; internal.
    """
    from cloister.evaluation.measures import at_hand

    if not attacks.comparable_records(real, synthetic):
        return
    rows, shown = at_hand(real), at_hand(synthetic)
    closest = attacks.closest_records(rows, shown, real)
    yield Risk(
        "Distance to the closest real row, median",
        f"{closest.synthetic_median:.4f}",
        f"{closest.real_median:.4f}",
        "beside that of real rows that were set aside; far below it, rows follow real ones",
    )
    yield Risk(
        "Synthetic rows that equal a real row",
        f"{closest.copies:.2%}",
        f"{closest.twins:.2%}",
        "beside real rows that equal another one",
    )
    if held_out is None or not attacks.comparable_records(held_out, synthetic):
        alone = attacks.single_out(rows, rows, shown)
        meaning = f"of {alone.attempts} descriptions of three values that fit one synthetic row"
        yield Risk("Descriptions that fit one real row", f"{alone.fitted:.1%}", "unknown", meaning)
        return
    member = attacks.infer_membership(rows, held_out, shown)
    yield Risk(
        "Membership, area under the ROC curve",
        f"{member.auc:.3f}",
        "0.5",
        f"95 %: {member.low:.3f} to {member.high:.3f}; 0.5 is a guess, 1 tells everybody",
    )
    leaks = {
        "Attributes guessed from all others": attacks.infer_attributes(rows, held_out, shown),
        "Synthetic rows nearer to a fitted row": attacks.nearer_to_fitted(rows, held_out, shown),
        "Descriptions that fit one real row": attacks.single_out(rows, held_out, shown),
    }
    yield from (_leak(attack, advantage) for attack, advantage in leaks.items())


def _leak(attack: str, advantage: attacks.Advantage) -> Risk:
    return Risk(
        attack,
        f"{advantage.fitted:.1%}",
        f"{advantage.held_out:.1%}",
        f"beside rows held out; leaked: {100 * advantage.difference:+.1f} ± "
        f"{100 * advantage.margin:.1f} percentage points (95 %)",
    )
