"""The steps that measure domains: charge, open, ask, write the new spec."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloister.errors import InputError
from cloister.privacy.certificate_origins import exact_text
from cloister.privacy.discovery import Findings, discover
from cloister.privacy.ledger import Anchor
from cloister.privacy.manifest import Lineage, write_manifest
from cloister.schema.attributes import DATA_DERIVED, MEASURED
from cloister.schema.marked import read_marked
from cloister.schema.writing import spec_text
from models.protocol import Plan
from tasks import columns
from tasks.certifying import fresh
from tasks.charging import Charge, DataReference, reserved
from tasks.checks import checked_spec
from tasks.code import code_version
from tasks.domains import domain_world, planned_domains
from tasks.home import Home
from tasks.ledgers import open_ledger, record_candidate, spent_anchor
from tasks.orders import Order
from tasks.outputs import replaced
from tasks.plans import plan_digest
from tasks.progress import reporter
from tasks.references import digest_of
from tasks.steps import step

SPEC_NAME = "spec.yaml"

_HEAD = """\
# What is marked dp was measured with noise by release {release}, and may be handed on: bounds, values, grids and
# whether values may be missing. All the rest is as declared. Values outside are clipped, or become missing.
"""


@dataclass(frozen=True)
class Written:
    """The new spec, and what keeps a release from taking it as it is; empty if nothing does."""

    path: Path
    problem: str


@step("reserve", "reserve epsilon {order.budget.epsilon} to measure {order.spec.stem}")
def reserve_measurement(order: Order, plan: Plan, home: Home) -> Charge:
    """Reserve the price of a measurement, or find the unfinished one of the same order.

    Raises:
        BudgetExceeded: the budget does not hold it.
    """
    return reserved(order, domain_world(order), plan, home)


@step("open", "open columns for {charge.release}")
def open_columns(order: Order, charge: Charge, home: Home) -> DataReference:
    """Read the data.

    Raises:
        InputError: it cannot be read, or has other columns than declared.
    """
    digest = columns.open_columns(charge.release, order, domain_world(order).spec, home)
    return DataReference(charge.release, digest)


@step("spend", "charge {charge.release}")
def spend_measurement(order: Order, charge: Charge, plan: Plan, data: DataReference, home: Home) -> Anchor:
    """Open the journal, and make the charge final: from here on the data is asked.

    Raises:
        JournalMismatch: the measurement was begun with other data, code, spec or parameters.
    """
    fingerprint = {"data": data.digest, "spec": order.digest, "code": code_version(), "plan": plan_digest(plan)}
    journal = columns.open_door(charge.release, planned_domains(order), fingerprint, home)
    ledger = open_ledger(home)
    ledger.spend(charge.release, order.by, journal.id, data.digest)
    return spent_anchor(ledger, charge.release)


@step("measure", "measure domains for {charge.release}")
def measure_domains(order: Order, charge: Charge) -> Findings:
    """What was found, all of it released; the journal is sealed: nothing more is asked."""
    opened = columns.door(charge.release)
    found = discover(opened.private, planned_domains(order), lambda *done: reporter().advanced("measure", *done))
    opened.journal.seal()
    return found


@step("write", "write spec of {charge.release}")
def write_spec(order: Order, charge: Charge, anchor: Anchor, found: Findings, home: Home) -> Written:
    """The new spec, in the release folder and where it was asked; the release is a candidate once it is there.

    Raises:
        StorageError: it cannot be written.
    """
    content = measured_content(read_marked(order.spec).content, order, charge.release, found)
    text = _HEAD.format(release=charge.release) + spec_text(content)
    folder = fresh(home.release(charge.release) / "public")
    (folder / SPEC_NAME).write_text(text, encoding="utf-8")
    manifest = write_manifest(folder, charge.release, Lineage(anchor, code_version(), order.digest))
    out = order.out or folder / SPEC_NAME
    replaced(out, lambda part: part.write_text(text, encoding="utf-8"))
    evidence = {"manifest": manifest.digest, "spec": digest_of(folder / SPEC_NAME)}
    record_candidate(charge.release, order.by, evidence, home)
    return Written(out, _problem(out))


def measured_content(content: dict[str, Any], order: Order, release: str, found: Findings) -> dict[str, Any]:
    """The plain values of a spec with what was found in place of what the data had been asked for without noise."""
    source = f"{MEASURED} release {release}, epsilon {exact_text(order.budget.epsilon)}, delta "
    source += exact_text(order.budget.delta)
    nothing = f"{DATA_DERIVED}: nothing was found by release {release}; declare it"
    attributes = {
        name: {**keys, "provenance": nothing if name in found.empty else source}
        for name, keys in found.attributes.items()
    }
    rows = {"public": found.rows, "provenance": source}
    privacy = content["privacy"]
    validation = content.get("validation") or {}
    return {
        **content,
        "privacy": {**privacy, "rows": rows} if privacy["rows"].get("measured") else privacy,
        "attributes": {**content["attributes"], **attributes},
        "validation": validation if validation.get("on_invalid", "fail") != "fail" else {"on_invalid": "clip"},
    }


def _problem(path: Path) -> str:
    try:
        checked_spec(path)
    except InputError as error:
        return str(error)
    return ""
