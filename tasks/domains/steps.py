"""The steps of a measurement after its charge: query the data, write the new spec."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from cloister.errors import InputError
from cloister.privacy.certificate.manifest import Lineage, write_manifest
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.discovery import Findings, discover
from cloister.privacy.door.table import PrivateColumns
from cloister.schema.attributes import DATA_DERIVED, MEASURED
from cloister.schema.spec_files.yaml_text import read_marked, spec_text
from cloister.tasks.data.session import Spent
from cloister.tasks.domains.plan import SPEC_NAME, domain_plan
from cloister.tasks.ledger.transitions import record_candidate, seal
from cloister.tasks.release.certify import fresh
from cloister.tasks.release.retained import write_kept
from cloister.tasks.requests.check import checked_spec
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.code_version import code_version
from cloister.tasks.runtime.files import replace_file
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.progress import reporter
from cloister.tasks.runtime.references import digest_of
from cloister.tasks.runtime.step import step

_HEAD = """\
# What is marked dp was measured with noise by release {release}, and may be shared: bounds,
# values, grids and whether values may be missing. All the rest is as declared, names, types and
# words of booleans among it. Values outside are clipped, or become missing.
"""


@dataclass(frozen=True)
class Written:
    """The new spec, and why a release would refuse it as it is; empty if it would not."""

    path: Path
    problem: str


@step("measure", "measure domains for {spent.release}")
def measure_domains(
    request: ResolvedRequest, spent: Spent[pd.DataFrame, PrivateColumns], home: Home
) -> Findings:
    """Run all queries and seal the journal; the findings are private and may be released."""
    advanced = partial(reporter().advance, "measure")
    found = discover(spent.private, domain_plan(request), advanced)
    seal(spent.release, request, spent.journal, home)
    return found


@step("write", "write spec of {spent.release}")
def write_spec(
    request: ResolvedRequest,
    spent: Spent[pd.DataFrame, PrivateColumns],
    found: Findings,
    home: Home,
) -> Written:
    """The new spec, in the release folder and where it was asked.

    Raises:
        StorageError: it cannot be written.
    """
    release = spent.release
    content = measured_content(read_marked(request.spec).content, request, release, found)
    text = _HEAD.format(release=release) + spec_text(content)
    folder = fresh(home.release(release) / "public")
    (folder / SPEC_NAME).write_text(text, encoding="utf-8")
    out = request.out_path or folder / SPEC_NAME
    replace_file(out, lambda part: part.write_text(text, encoding="utf-8"))
    return Written(out, _problem(out))


@step("finish", "finish {spent.release}")
def finish(
    request: ResolvedRequest, spent: Spent[pd.DataFrame, PrivateColumns], home: Home
) -> None:
    """Write the manifest and make the measurement a candidate; its spec is at its place by now.

    Raises:
        StorageError: the manifest cannot be written.
    """
    folder, kept = home.release(spent.release) / "public", write_kept(home, spent.release)
    lineage = Lineage(spent.anchor, code_version(), request.digest, kept=kept)
    manifest = write_manifest(folder, spent.release, lineage)
    evidence = {"manifest": manifest.digest, "spec": digest_of(folder / SPEC_NAME)}
    record_candidate(spent.release, request.by, evidence, home)


def measured_content(
    content: dict[str, Any], request: ResolvedRequest, release: str, found: Findings
) -> dict[str, Any]:
    """The plain values of a spec, its data-derived entries replaced by the private findings."""
    source = f"{MEASURED} release {release}, epsilon {exact_text(request.budget.epsilon)}, delta "
    source += exact_text(request.budget.delta)
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
        "validation": validation
        if validation.get("on_invalid", "fail") != "fail"
        else {"on_invalid": "clip"},
    }


def _problem(path: Path) -> str:
    try:
        checked_spec(path)
    except InputError as error:
        return str(error)
    return ""
