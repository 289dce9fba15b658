"""Specs as YAML text that is read back unchanged: one line an attribute, quotes where needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]+")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def spec_text(content: Mapping[str, Any]) -> str:
    """The YAML text of the plain values of a spec, in their order."""
    return "".join(line + "\n" for name, value in content.items() for line in _section(name, value))


def scalar(text: str) -> str:
    """A text as YAML; in quotes unless it is a plain word that any reader takes for text."""
    plain = _PLAIN.fullmatch(text) is not None and isinstance(yaml.safe_load(text), str)
    return text if plain else _quoted(text)


def flow(value: object) -> str:
    """A plain value as YAML on one line."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, Mapping):
        return "{" + entries(value) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return json.dumps(value)


def entries(keys: Mapping[str, Any]) -> str:
    """Keys and values as in a mapping on one line, without its braces."""
    return ", ".join(f"{scalar(key)}: {flow(value)}" for key, value in keys.items())


def _section(name: str, value: object) -> Iterator[str]:
    if name == "attributes" and isinstance(value, Mapping):
        yield "attributes:"
        yield from (f"  {scalar(key)}: {flow(keys)}" for key, keys in value.items())
    elif name == "constraints" and value and isinstance(value, Sequence):
        yield "constraints:"
        yield from (f"  - {flow(declaration)}" for declaration in value)
    else:
        yield f"{scalar(name)}: {flow(value)}"


def _quoted(text: str) -> str:
    """A YAML double-quoted scalar: JSON's, with the characters escaped that YAML does not print."""
    return _UNPRINTABLE.sub(
        lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False)
    )
