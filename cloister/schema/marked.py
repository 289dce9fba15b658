"""YAML text as plain values that remember their lines.

Scalars are read by YAML 1.2's core rules, which are narrower than PyYAML's: only ``true`` and ``false`` are booleans
(``no`` is text), ``010`` and ``1:30`` are text, ``1e-6`` is a number, dates are text. Keys are always text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cloister.errors import SpecError, StorageError

Key = str | int


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: its line in the file (from 1), the keys that lead to it, rule and remedy."""

    line: int
    keys: tuple[Key, ...]
    text: str

    def __str__(self) -> str:
        place = ".".join(str(key) for key in self.keys)
        return f"line {self.line}, {place}: {self.text}" if place else f"line {self.line}: {self.text}"


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

    def problem(self, keys: Sequence[Key], text: str) -> Problem:
        """A problem at ``keys``."""
        return Problem(self.line(keys), tuple(keys), text)


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's core scalars."""

    yaml_implicit_resolvers: dict[str, Any] = {}


_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}

for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first)


def read_marked(path: Path) -> Marked:
    """The YAML document in a file.

    Raises:
        StorageError: the file cannot be read.
        SpecError: not UTF-8, not YAML, not one mapping, or a key that occurs twice; names file and line.
    """
    root = _composed(path, _text_of(path))
    if not isinstance(root, yaml.MappingNode):
        raise SpecError(f"{path} holds no mapping of keys; start it with 'name: ...' (cloister spec draft writes one)")
    try:
        misplaced = _misplaced_keys(root, ())
    except RecursionError:
        raise SpecError(f"{path} contains itself by an alias; write the part out") from None
    if misplaced:
        raise unusable(path, misplaced)
    return Marked(_value(root), root)


def unusable(path: Path, problems: Sequence[Problem]) -> SpecError:
    """The one error that lists all problems of a spec file, in the order of its lines."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: problem.line)
    if len(ordered) == 1:
        return SpecError(f"{path}, {ordered[0]}")
    return SpecError(f"{path} has {len(ordered)} problems:\n" + "\n".join(f"  {problem}" for problem in ordered))


def _text_of(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"the spec {path} cannot be read ({error.strerror}); check its path and permissions"
        ) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise SpecError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def _composed(path: Path, text: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(f"{path}, line {line}: {_syntax(error.problem or 'not YAML')}") from None
    except yaml.YAMLError:
        raise SpecError(f"{path} is not YAML; remove its control characters") from None
    return node


def _syntax(problem: str) -> str:
    if r"'\t'" in problem:
        return "a tab stands where only spaces may; indent with spaces"
    return f"not YAML ({problem}); check indentation, colons and quotes"


def _entries(node: yaml.Node) -> dict[Key, tuple[int, yaml.Node]]:
    """The children of a node by key or position, each with the line (from 0) where it starts."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: (key.start_mark.line, value) for key, value in node.value if isinstance(key.value, str)}
    if isinstance(node, yaml.SequenceNode):
        return {place: (item.start_mark.line, item) for place, item in enumerate(node.value)}
    return {}


def _misplaced_keys(node: yaml.Node, keys: tuple[Key, ...]) -> list[Problem]:
    found = [problem for key, (_, child) in _entries(node).items() for problem in _misplaced_keys(child, (*keys, key))]
    seen: dict[str, int] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        line = key.start_mark.line + 1
        if not isinstance(key.value, str):
            found.append(Problem(line, keys, "a key must be text; put quotes around it"))
        elif key.value in seen:
            found.append(Problem(line, (*keys, key.value), f"the key stands on line {seen[key.value]} too; keep one"))
        else:
            seen[key.value] = line
    return found


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
