"""Where a release comes from: bounds, lists of values, constraints, and the code that made it.

All of the declarations are public. The code is known as far as the installation shows it.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from cloister.constraints import DenialConstraint
from cloister.constraints.across import AcrossConstraint
from cloister.constraints.declared import declaration_of
from cloister.figures import count_of
from cloister.privacy.certificate import certificate
from cloister.schema import attributes
from cloister.schema.codelists import resolve_values
from cloister.schema.relations import ForeignKey
from cloister.schema.spec import About, PersonUnit, Spec
from cloister.version import __version__

if TYPE_CHECKING:
    from cloister.constraints.denial import ViolationReport


_MOST_SHOWN = 8
"""Most values of a declared list that are written out among the words of a domain."""

_MOST_LISTED = 2_000
"""Most values of a list that a certificate holds: more take seconds to read; the schema beside it
has all."""

_METHOD = (
    "the method, its parameters, the noise levels and the order in which attributes are modelled"
)
_DOMAINS = (
    "bounds, lists of values, bins and special values of every attribute, with the provenance "
    "given here"
)
_RULES = (
    "the constraints, with the provenance given here: that one holds in the data is a fact of the "
    "data, which no noise protects, unless it is known from elsewhere"
)
_DECISION = (
    "which releases are approved, and when: whoever decides may look at exact figures that compare "
    "the synthetic with the real table, or attack the one by the other, so that approval on exact "
    "figures is itself a selection, which no epsilon covers"
)
_UNSOURCED = "declared in the spec, which names no source"


def statements(about: About) -> dict[str, str]:
    """What a curator states about a release, in order; what is not stated is marked as missing."""
    return {name: value or certificate.NOT_STATED for name, value in dict(about).items()}


def exact_text(amount: Fraction) -> str:
    """An exact number as text: the decimal that it is, or ``p/q``."""
    decimal = f"{float(amount):.15g}".replace("e-0", "e-").replace("e+0", "e+")
    return decimal if Fraction(decimal) == amount else str(amount)


_ONCE = "one value for all rows of a person"
_PERSON_KEY = "one for each synthetic person"


def attribute_origins(
    spec: Spec, of_persons: Sequence[str] = ()
) -> tuple[certificate.AttributeOrigin, ...]:
    """Every attribute with its declared domain in words, and where that comes from.

    ``of_persons`` are the key of persons, if they have several rows, and their attributes.
    """
    return tuple(
        certificate.AttributeOrigin(
            name=spec.naming(table) + name,
            type=attribute.type,
            domain="; ".join([domain_words(attribute), *_of_person(name, of_persons)]),
            missing=attribute.nullable,
            provenance=_provenance(attribute.provenance),
            values=_whole_list(attribute, spec.folder),
        )
        for table, part in spec.parts.items()
        for name, attribute in part.attributes.items()
    )


def _of_person(name: str, of_persons: Sequence[str]) -> list[str]:
    if name not in of_persons:
        return []
    return [_PERSON_KEY if name == of_persons[0] else _ONCE]


def ignored_columns(spec: Spec) -> tuple[str, ...]:
    """The columns of the source that a spec leaves out of everything."""
    return tuple(
        spec.naming(table) + name
        for table, part in spec.parts.items()
        for name in (column if column.strip() else "(without a name)" for column in part.ignore)
    )


def key_origins(
    dangling: Sequence[tuple[ForeignKey, int]],
) -> tuple[certificate.ConstraintOrigin, ...]:
    """Every foreign key with the synthetic rows that break it."""
    return tuple(
        certificate.ConstraintOrigin(
            name=f"{key.table}: {key.column}",
            rule=f"foreign key: {key.table}.{key.column} refers to {key.parent}.{key.key}",
            hard=True,
            provenance="public: declared in the spec",
            violations=rows,
            percent=0.0,
        )
        for key, rows in dangling
    )


def constraint_origins(
    constraints: Sequence[DenialConstraint], violations: Sequence[ViolationReport]
) -> tuple[certificate.ConstraintOrigin, ...]:
    """Every constraint with its violations in the synthetic table."""
    counted = {report.name: report for report in violations}
    return tuple(
        certificate.ConstraintOrigin(
            name=constraint.name,
            rule=rule_text(constraint),
            hard=constraint.hard,
            provenance=_provenance(constraint.provenance) + _known_words(constraint),
            violations=counted[constraint.name].violations,
            percent=counted[constraint.name].percent,
        )
        for constraint in constraints
    )


def across_origins(
    constraints: Sequence[AcrossConstraint], violations: Sequence[ViolationReport]
) -> tuple[certificate.ConstraintOrigin, ...]:
    """Every constraint across a foreign key with the synthetic rows that violate it."""
    counted = {report.name: report for report in violations}
    return tuple(
        certificate.ConstraintOrigin(
            name=constraint.name,
            rule=f"deny across {constraint.key.table}.{constraint.key.column}: {constraint.text}",
            hard=True,
            provenance=_provenance(constraint.rule.provenance),
            violations=counted[constraint.name].violations,
            percent=counted[constraint.name].percent,
        )
        for constraint in constraints
    )


def _known_words(constraint: DenialConstraint) -> str:
    """What is declared of a soft constraint, in words; empty if nothing is."""
    known = constraint.known
    if known is None:
        return ""
    if known.rate is not None:
        return f"; with a rate of {100 * known.rate:g} % ({known.provenance})"
    return f"; with a weight of {known.weight:g}"


def unprotected_facts(spec: Spec) -> tuple[str, ...]:
    """What is published without noise, because it was declared and not computed from the data."""
    declared = [
        f"the declared number of rows{spec.naming(table, ' of {}')}, {rows}"
        for table, part in spec.parts.items()
        if (rows := part.privacy.rows.public) is not None
    ]
    if isinstance(spec.privacy.unit, PersonUnit) and spec.privacy.unit.declared_persons:
        declared.append(f"the declared number of persons, {spec.privacy.unit.declared_persons}")
    return (
        *declared,
        "the schema: names, types and order of the attributes, and which may be missing",
        _DOMAINS + _noisy(spec),
        *([_RULES] if any(part.constraints for part in [spec, *spec.parts.values()]) else []),
        _METHOD,
        "this certificate",
        _DECISION,
    )


def _noisy(spec: Spec) -> str:
    measured = any(
        attribute.measured for part in spec.parts.values() for attribute in part.attributes.values()
    )
    return "; what is marked dp was measured with noise and charged" if measured else ""


def rule_text(constraint: DenialConstraint) -> str:
    """A constraint as a spec writes it, after the check that it stands for."""
    declared = declaration_of(constraint)
    if constraint.sentence:
        return f"check: {constraint.sentence}; so deny: {declared.deny}"
    if declared.key is not None:
        return f"key: {', '.join(declared.key)}"
    return f"fd: {declared.fd}" if declared.fd is not None else f"deny: {declared.deny}"


def domain_words(attribute: attributes.AnyAttribute) -> str:
    """The declared domain of an attribute, short."""
    if isinstance(attribute, attributes.Categorical | attributes.Ordinal):
        return _list_words(attribute)
    if isinstance(attribute, attributes.Boolean):
        return f"{attribute.false}, {attribute.true}"
    if isinstance(attribute, attributes.TextKey):
        fresh = f"fresh serial values {attribute.pattern}; never modelled, never copied"
        return fresh + _gaps(attribute)
    return _range_words(attribute)


def _gaps(attribute: attributes.TextKey) -> str:
    """How often a key that may be missing is so in the synthetic rows, as a further clause."""
    if attribute.missing_share is not None:
        return f"; missing in {100 * attribute.missing_share:g} % of rows, chosen at random"
    return "; missing in none of the synthetic rows" if attribute.nullable else ""


def _list_words(attribute: attributes.Categorical | attributes.Ordinal) -> str:
    return _values_words(attribute) + _tree_words(getattr(attribute, "hierarchy", None))


def _tree_words(
    hierarchy: list[int] | attributes.ParentsFile | attributes.Parents | None,
) -> str:
    """By what values form a tree, as a further clause."""
    if hierarchy is None:
        return ""
    if isinstance(hierarchy, attributes.ParentsFile):
        return f"; in the tree of the file {hierarchy.file}"
    if isinstance(hierarchy, attributes.Parents):
        return f"; in a tree of {count_of(len(set(hierarchy.parents.values())), 'node')}"
    return f"; in a tree by their first {', '.join(map(str, hierarchy))} letters"


def _values_words(attribute: attributes.Categorical | attributes.Ordinal) -> str:
    if isinstance(attribute.values, attributes.ValuesFile):
        return f"the values in the file {attribute.values.file}"
    if isinstance(attribute.values, attributes.ValuesPattern):
        return f"the values {attribute.values.pattern}"
    values = [str(value) for value in attribute.values]
    shown = ", ".join(values[:_MOST_SHOWN])
    return shown if len(values) <= _MOST_SHOWN else f"{len(values)} values: {shown}, ..."


def _whole_list(attribute: attributes.AnyAttribute, folder: Path) -> tuple[str, ...]:
    """The values of a list that is too long to be shown whole; () of a pattern, which is whole."""
    if not isinstance(attribute, attributes.Categorical | attributes.Ordinal):
        return ()
    if isinstance(attribute.values, attributes.ValuesPattern):
        return ()
    values = tuple(str(value) for value in resolve_values(attribute.values, folder))
    shown = isinstance(attribute.values, list) and len(values) <= _MOST_SHOWN
    return () if shown or len(values) > _MOST_LISTED else values


def _range_words(attribute: attributes.AnyAttribute) -> str:
    low, high = (getattr(attribute, end) for end in ("min", "max"))
    words = [f"{low} to {high}"]
    if isinstance(attribute, attributes.Float) and attribute.decimals is not None:
        words.append(count_of(attribute.decimals, "decimal"))
    step = getattr(attribute, "step", None)
    if step not in (None, 1):
        words.append(
            f"steps of {step}{' seconds' if isinstance(attribute, attributes.Datetime) else ''}"
        )
    if bins := getattr(attribute, "bins", None):
        words.append(count_of(bins, "bin"))
    if getattr(attribute, "scale", None):
        words.append("bins on a logarithmic scale")
    if special := getattr(attribute, "special", ()):
        words.append(f"special: {', '.join(str(value) for value in special)}")
    if rounded := getattr(attribute, "rounded", ()):
        words.append(f"often multiples of {', '.join(str(step) for step in rounded)}")
    return "; ".join(words)


def _provenance(declared: str) -> str:
    """Where a declaration comes from: measured, read from the data, or public, from a source."""
    if declared.startswith(attributes.MEASURED):
        return declared
    if attributes.is_data_derived(declared):
        return f"data-derived: {declared}"
    return f"public: {_UNSOURCED if declared in ('', 'declared') else declared}"


_ROOT = Path(__file__).parents[3]
_LOCK = "constraints.txt"
_LIBRARIES = ("torch", "opendp", "numpy", "cryptography", "pandas")


@cache
def software(sources: str) -> certificate.Software:
    """The running code; ``sources`` is a digest of its sources.

    Commit and lock file are those of a checkout, and None for an installed package. A commit whose
    files were changed ends in ``+changes``.
    """
    return certificate.Software(
        cloister=__version__,
        sources=sources,
        commit=_commit(_ROOT) if (_ROOT / ".git").exists() else None,
        lock=_digest(_ROOT / _LOCK),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        libraries={name: version for name in _LIBRARIES if (version := _version(name))},
    )


def _commit(root: Path) -> str | None:
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+changes" if commit and changed else commit


def _git(root: Path, *words: str) -> str | None:
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
