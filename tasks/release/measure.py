"""A measurement of domains: what is checked before its charge, and its steps after it.

They query the data and write the new spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from cloister.errors import InputError, PlanError, StorageError
from cloister.models.task import Budget
from cloister.privacy.certificate.manifest import Lineage, write_manifest
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.discovery import Findings, discover
from cloister.privacy.door.table import PrivateColumns
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger.house import SIGNATURE
from cloister.schema.attributes import DATA_DERIVED, MEASURED, ParentsFile, ValuesFile
from cloister.schema.spec import Spec
from cloister.schema.spec_files.yaml_text import read_marked, spec_text
from cloister.tasks.data.session import Spent
from cloister.tasks.home import files
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version, reporter
from cloister.tasks.ledger.access import open_ledger, pending_release, record_candidate, seal
from cloister.tasks.release.kept_files import write_kept
from cloister.tasks.release.preflight import require_readable
from cloister.tasks.release.signing import sign_candidate
from cloister.tasks.requests.measurement import SPEC_NAME, domain_context, domain_plan
from cloister.tasks.requests.options import require_small_delta
from cloister.tasks.requests.plan import checked_spec
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest
from cloister.tasks.stores.prefect_runs import step

_SPEC_BYTES = 1 << 20
"""Bytes of disk that a new spec needs: as many as a spec may have."""


def require_ready(request: ResolvedRequest, home: Home) -> None:
    """Check everything about a measurement that needs no data.

    Raises:
        StorageError: the data cannot be read, the new spec cannot be written, or would not find its
            files.
        PlanError: delta cannot be, or too little of the declared budget is left for a release.
    """
    context = domain_context(request)
    if not 0 < request.budget.delta < 1:
        raise PlanError("delta should be above 0 and below 1; give a small one with --delta")
    if context.spec.privacy.rows.public:
        require_small_delta(request.budget, context.spec)
    _require_rest(request, context.spec)
    require_readable(request, context.spec)
    _require_place(request, context, home)
    files.require_home(home)
    files.require_room(home.folder, _SPEC_BYTES)


def _require_rest(request: ResolvedRequest, spec: Spec) -> None:
    """The declared budget holds the measurement and one release as it is declared."""
    declared, context = spec.privacy.budget, domain_context(request)
    release = context.price(Budget(spec.release.epsilon, spec.release.delta))
    price = context.price(request.budget)
    rest = declared.epsilon - price.epsilon, declared.delta - price.delta
    if rest[0] < release.epsilon or rest[1] < release.delta:
        left = declared.epsilon - release.epsilon, declared.delta - release.delta
        remedy = (
            f"measure with epsilon {decimal_below(left[0])} and delta {decimal_below(left[1])} at "
            "most, or declare"
            if min(left) > 0
            else "declare"
        )
        raise PlanError(
            f"of the declared budget, epsilon {decimal_below(declared.epsilon)} and delta "
            f"{decimal_below(declared.delta)}, too little is left for the declared release, "
            f"epsilon {decimal(release.epsilon)} and delta {decimal(release.delta)}; "
            f"{remedy} a smaller release or a larger budget"
        )


def _require_place(request: ResolvedRequest, context: PublicContext, home: Home) -> None:
    """Check that the new spec replaces nothing, and finds the files that it names."""
    out, spec = request.out_path, context.spec
    if out is None:
        raise StorageError("there is no file for the new spec; give one with --out")
    files.require_nameable(out)
    if (out.exists() or out.is_symlink()) and not _written_before(out, request, context, home):
        raise StorageError(f"{out} exists; give another file with --out, or move it away")
    if _names_files(spec) and out.parent != request.spec.parent:
        raise StorageError(
            f"the spec names files beside it; give --out a file in {request.spec.parent}"
        )
    files.require_room(out.parent, _SPEC_BYTES)


def _written_before(
    out: Path, request: ResolvedRequest, context: PublicContext, home: Home
) -> bool:
    """Whether ``out`` is the spec that an earlier, killed run of this request wrote."""
    release = pending_release(request, context, home)
    written = home.release(release.id) / "public" / SPEC_NAME if release else None
    return (
        written is not None
        and written.is_file()
        and out.is_file()
        and out.read_bytes() == written.read_bytes()
    )


def _names_files(spec: Spec) -> bool:
    declared = [attribute for attribute in spec.attributes.values() if not attribute.data_derived]
    lists = any(
        isinstance(getattr(attribute, key, None), ValuesFile | ParentsFile)
        for attribute in declared
        for key in ("values", "hierarchy")
    )
    return lists or any(declaration.file for declaration in spec.constraints)


_HEAD = """\
# What is marked dp was measured with noise by release {release}, and may be shared: bounds,
# values, grids and whether values may be missing. All the rest is as declared, names, types and
# words of booleans among it. Values outside are clipped, or become missing.
"""


@dataclass(frozen=True)
class Written:
    """The new spec, and why a release would refuse it; empty if it would not."""

    path: Path
    problem: str


@step("measure", "measure domains for {spent.release}", "spent")
def measure_domains(
    request: ResolvedRequest, spent: Spent[pd.DataFrame, PrivateColumns], home: Home
) -> Findings:
    """Run all queries and seal the journal; the findings are private and may be released."""
    advanced = partial(reporter().advance, "measure")
    findings = discover(spent.private, domain_plan(request), advanced)
    seal(spent.release, request, spent.journal, home)
    return findings


@step("write", "write spec of {spent.release}", "findings")
def write_spec(
    request: ResolvedRequest,
    spent: Spent[pd.DataFrame, PrivateColumns],
    findings: Findings,
    home: Home,
) -> Written:
    """Write the new spec into the release folder and to the requested file.

    Raises:
        StorageError: it cannot be written.
    """
    release = spent.release
    content = measured_content(read_marked(request.spec).content, request, release, findings)
    text = _HEAD.format(release=release) + spec_text(content)
    folder = files.emptied(home.release(release) / "public")
    (folder / SPEC_NAME).write_text(text, encoding="utf-8")
    out = request.out_path or folder / SPEC_NAME
    files.replace_file(out, lambda part: part.write_text(text, encoding="utf-8"))
    return Written(out, _problem(out))


@step("finish", "finish {spent.release}", "spent")
def finish(
    request: ResolvedRequest, spent: Spent[pd.DataFrame, PrivateColumns], home: Home
) -> None:
    """Write the manifest and make the measurement a candidate; its spec is at its place by now.

    Raises:
        StorageError: the manifest cannot be written.
    """
    folder, listed = home.release(spent.release) / "public", write_kept(home, spent.release)
    lineage = Lineage(spent.anchor, code_version(), request.digest, kept=listed)
    manifest = write_manifest(folder, spent.release, lineage)
    entry = open_ledger(home).release(spent.release)
    signature = sign_candidate(folder, entry, spent.anchor, request.by, home)
    evidence = {
        "manifest": manifest.digest,
        "spec": files.digest_of(folder / SPEC_NAME),
        SIGNATURE: signature,
    }
    record_candidate(spent.release, request.by, evidence, home)


def measured_content(
    content: dict[str, Any], request: ResolvedRequest, release: str, findings: Findings
) -> dict[str, Any]:
    """The plain values of a spec, its data-derived entries replaced by the private findings."""
    source = f"{MEASURED} release {release}, epsilon {exact_text(request.budget.epsilon)}, delta "
    source += exact_text(request.budget.delta)
    nothing = f"{DATA_DERIVED}: nothing was found by release {release}; declare it"
    attributes = {
        name: {**keys, "provenance": nothing if name in findings.empty else source}
        for name, keys in findings.attributes.items()
    }
    rows = {"public": findings.rows, "provenance": source}
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
