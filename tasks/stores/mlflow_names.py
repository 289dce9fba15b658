"""Names in MLflow: tags, filters, and keys of metrics and parameters."""

from __future__ import annotations

import hashlib
import re

RELEASE = "release.id"
"""The tag that names the release of a run, a model or a version."""

_LONGEST_KEY = 200
"""Letters of the name of a metric or parameter, of the 250 that MLflow accepts."""

_KEY_DIGITS = 12
"""Hexadecimal digits of the digest that distinguishes names which would be written alike: 48
bits."""


def quotable(release: str) -> bool:
    """Whether a text can be the id of a release, which a filter quotes."""
    return release.isascii() and release.replace("-", "").isalnum()


def release_filter(release: str) -> str:
    """The filter that finds what belongs to a release."""
    return f"tags.`{RELEASE}` = '{release}'"


def mlflow_key(name: str) -> str:
    """A name as MLflow accepts it; different names stay different.

    It holds letters, digits, ``_-. `` and single inner slashes.
    """
    kept = "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)[
        :_LONGEST_KEY
    ]
    kept = re.sub(r"^[. /]|(?<=/)[./]|/$", "_", kept)
    if kept == name:
        return kept
    return f"{kept}-{hashlib.sha256(name.encode()).hexdigest()[:_KEY_DIGITS]}"
