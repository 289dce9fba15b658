"""YAML text of specs: read as plain values that remember their lines, and written to be read back.

Scalars are read by narrower rules than PyYAML's or YAML 1.2's: only ``true`` and ``false`` are
booleans (``no`` is text), ``010`` and ``1:30`` are text, ``1e-6`` is a number, dates are text. Keys
are always text. What is written has one line an attribute, and quotes where reading needs them.

ruamel.yaml, which knows lines too, would save only the loader class: it reads ``010``, ``1_000``
and dates as values, stops at the first doubled key, and accepts alias bombs, documents that contain
themselves and half characters, so every check below would stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from cloister.errors import SpecError, StorageError
from cloister.schema.sources.files_and_urls import read_small_file, reason_of

Key = str | int

_MOST_BYTES = 1_000_000
"""Bytes of a spec file at most: hundreds of times the longest that was written by hand."""

_MOST_NODES = 80_000
"""Keys and values of a spec at most, aliases written out: PyYAML reads about 40,000 a second."""

_MOST_LEVELS = 50
"""Levels of a spec at most: the deepest form with a meaning has 6."""

_MOST_DIGITS = 40
"""Digits of a whole number at most: more than any bound has, and fast to calculate with."""


@dataclass(frozen=True)
class SpecProblem:
    """One fault of a file: its line (from 1), the keys that lead to it, rule and remedy."""

    line: int
    keys: tuple[Key, ...]
    text: str

    def __str__(self) -> str:
        keys = ".".join(str(key) for key in self.keys)
        return (
            f"line {self.line}, {keys}: {self.text}" if keys else f"line {self.line}: {self.text}"
        )


@dataclass(frozen=True)
class Marked:
    """A YAML document: its ``content`` as plain values, and the nodes that know their lines."""

    content: Any
    root: yaml.Node

    def line(self, keys: Sequence[Key]) -> int:
        """The line, from 1, of the deepest node on the way along ``keys``."""
        node = self.root
        line = node.start_mark.line
        for key in keys:
            entry = _entries(node).get(key)
            if entry is None:
                break
            line, node = entry
        return line + 1

    def problem(self, keys: Sequence[Key], text: str) -> SpecProblem:
        """A problem at ``keys``."""
        return SpecProblem(self.line(keys), tuple(keys), text)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of this module, and a limit on nodes."""

    yaml_implicit_resolvers: dict[str, Any] = {}
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, if there were not too many before it."""
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise _TooMany
        return super().compose_node(parent, index)


class _TooMany(Exception):
    """More nodes than a spec may have."""


_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (
        (
            r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)\.[0-9]*)([eE][-+]?[0-9]+)?"
            r"|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
        ),
        list("-+.0123456789"),
    ),
}

_TAG = "tag:yaml.org,2002:"
_FORMS = {
    f"{_TAG}{name}": re.compile(f"^(?:{pattern})$") for name, (pattern, _) in _SCALARS.items()
}
_KNOWN = {*_FORMS, *(f"{_TAG}{name}" for name in ("str", "seq", "map"))}

for _name, (_, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", _FORMS[f"{_TAG}{_name}"], _first)


def read_marked(path: Path) -> Marked:
    """The YAML document in a file.

    Raises:
        StorageError: the file cannot be read.
        SpecError: not UTF-8, not YAML, not one mapping, or a key that occurs twice; names file and
            line.
    """
    root = _composed(path, _text_of(path))
    if not isinstance(root, yaml.MappingNode):
        raise SpecError(
            f"{path} holds no mapping of keys; start it with 'name: ...' "
            "(cloister spec draft writes one)"
        )
    _require_modest(path, root)
    problems = _problems(root, ())
    if problems:
        raise spec_error(path, problems)
    return Marked(_value(root), root)


def spec_error(path: Path, problems: Sequence[SpecProblem]) -> SpecError:
    """The one error that lists all problems of a spec file, in the order of its lines."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: problem.line)
    if len(ordered) == 1:
        return SpecError(f"{path}, {ordered[0]}")
    return SpecError(
        f"{path} has {len(ordered)} problems:\n" + "\n".join(f"  {problem}" for problem in ordered)
    )


def _text_of(path: Path) -> str:
    try:
        raw = read_small_file(path, _MOST_BYTES)
    except OSError as error:
        raise StorageError(
            f"the spec {path} cannot be read ({reason_of(error)}); check its path and "
            "permissions, and put long lists of values into files of their own"
        ) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise SpecError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def _composed(path: Path, text: str) -> yaml.Node | None:
    try:
        return _node_of(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(f"{path}, line {line}: {_syntax(error.problem or 'not YAML')}") from None
    except yaml.YAMLError:
        raise SpecError(f"{path} is not YAML; remove its control characters") from None
    except RecursionError:
        raise _too_deep(path) from None
    except _TooMany:
        raise _too_many(path) from None
    except (ValueError, OverflowError):
        raise SpecError(f"{path} is not YAML; correct its escapes and its %YAML line") from None


@lru_cache(maxsize=1)
def _node_of(text: str) -> yaml.Node | None:
    node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    return node


def _too_deep(path: Path) -> SpecError:
    return SpecError(
        f"{path} is nested more than {_MOST_LEVELS} levels deep, or contains itself; write it flat"
    )


def _too_many(path: Path) -> SpecError:
    return SpecError(
        f"{path} holds more than {_MOST_NODES:,} keys and values, aliases (*name) written out; "
        "put long lists of values into files of their own"
    )


def _require_modest(path: Path, root: yaml.Node) -> None:
    """Check depth and size of a document with its aliases written out, without doing so."""
    if _weight(path, root, 0, {}) > _MOST_NODES:
        raise _too_many(path)


def _weight(path: Path, node: yaml.Node, level: int, known: dict[tuple[int, int], int]) -> int:
    """Number of nodes below a node, itself included; ``known`` has the numbers counted before."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if level > _MOST_LEVELS:
        raise _too_deep(path)
    node_level = (id(node), level)
    if node_level not in known:
        known[node_level] = 1 + sum(
            _weight(path, child, level + 1, known) for child in _children(node)
        )
    return known[node_level]


def _children(node: yaml.CollectionNode) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for entry in node.value for part in entry]
    return list(node.value)


def _syntax(problem: str) -> str:
    if r"'\t'" in problem:
        return "a tab is where only spaces are allowed; indent with spaces"
    return f"not YAML ({problem}); check indentation, colons and quotes"


def _entries(node: yaml.Node) -> dict[Key, tuple[int, yaml.Node]]:
    """The children of a node by key or position, each with the line (from 0) where it starts."""
    if isinstance(node, yaml.MappingNode):
        return {
            key.value: (key.start_mark.line, value)
            for key, value in node.value
            if isinstance(key.value, str)
        }
    if isinstance(node, yaml.SequenceNode):
        return {position: (item.start_mark.line, item) for position, item in enumerate(node.value)}
    return {}


def _problems(node: yaml.Node, keys: tuple[Key, ...]) -> list[SpecProblem]:
    if isinstance(node, yaml.ScalarNode):
        return [SpecProblem(node.start_mark.line + 1, keys, text) for text in _scalar_rules(node)]
    problems = [
        problem
        for key, (_, child) in _entries(node).items()
        for problem in _problems(child, (*keys, key))
    ]
    seen: dict[str, int] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        line = key.start_mark.line + 1
        if not isinstance(key.value, str):
            problems.append(SpecProblem(line, keys, "a key must be text; put quotes around it"))
        elif not _encodable(key.value):
            problems.append(SpecProblem(line, keys, f"a key {_HALF}"))
        elif key.value in seen:
            problems.append(
                SpecProblem(
                    line,
                    (*keys, key.value),
                    f"the key is also on line {seen[key.value]}; keep one",
                )
            )
        else:
            seen[key.value] = line
    return problems


_HALF = (
    r"holds half of a character, such as \ud800; write the whole character, or \U and eight digits"
)


def _scalar_rules(node: yaml.ScalarNode) -> Iterator[str]:
    form = _FORMS.get(node.tag)
    if node.tag not in _KNOWN or (form and not form.match(node.value)):
        yield "has a tag (!...) that does not suit it; leave the tag out"
    elif not _encodable(node.value):
        yield _HALF
    elif node.tag == f"{_TAG}int" and len(node.value) > _MOST_DIGITS:
        yield (
            f"has more than {_MOST_DIGITS} digits; write a shorter number, "
            "or put quotes around it if it is text"
        )


def _encodable(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {key.value: _value(child) for key, child in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_value(child) for child in node.value]
    return _scalar(node.tag.rpartition(":")[2], node.value)


def _scalar(tag: str, text: str) -> Any:
    if tag == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if tag == "int":
        return int(text)
    return {"null": None, "bool": text.lower() == "true"}.get(tag, text)


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
