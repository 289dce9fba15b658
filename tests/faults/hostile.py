"""Specs and words that somebody might give by mistake or in bad faith, drawn by a seed."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import yaml

FILES = ["codes/pipe", *"codes/none.txt codes /dev/zero /dev/stdin codes/big.txt".split()]
FILES += ["codes/latin.txt", "\0"]
VALUES: list[Any] = [
    *(None, True, "", " ", 0, -1, 1, 10**12, 10**18, 10**19, -(10**30), 10**400, int("9" * 4200)),
    *(0.5, 1e-300, 1e300, 1e308, float("nan"), float("inf"), float("-inf")),
    *("nan", "1e-1000000000", "1e1000000000", "1/0", "1/3", "9" * 5000, "a" * 300, "a" * 100_000),
    *("\ud800", "a\udfffb", "\0", "\x1b[31m", "line\nbreak", "../x", "/etc/passwd"),
    *("%s%n{}{0}", "$HOME ${HOME}", "0001-01-01", "9999-12-31", "2000-01-01T00:00:00+14:00"),
    *([], {}, [[]], {"": 1}, {"public": 10**15}, {"measured": True}),
    {"key": "age", "max_rows": 10**17},
    *({"pattern": f"z{{0..{end}}}"} for end in ("10000000", "9" * 26)),
    *({"pattern": "z{9..1}"}, {"pattern": "{1..2}{3..4}"}, {"above": 10**30}, {"above": "never"}),
    *({"file": name} for name in FILES),
    {"type": "text", "pattern": "R{0..9999999999999999999999}"},
    {"type": "float", "min": -1e308, "max": 1e308},
    {"type": "float", "min": 0, "max": 1, "decimals": 12, "bins": 10**9},
    {"type": "integer", "min": -(10**18), "max": 10**18, "step": 10**18},
    {"type": "integer", "min": 0, "max": 10**17, "bins": 10**17},
    {"type": "date", "min": "0001-01-01", "max": "9999-12-31", "bins": 10**6},
    {"type": "datetime", "min": "0001-01-01T00:00:00", "max": "9999-12-31T23:59:59"},
    {"type": "categorical", "values": {"pattern": "v{0..999999}"}},
    {"type": "categorical", "values": [0, 1, 10**25]},
    {"type": "ordinal", "values": [0.5, 1e308, 1]},
    {"deny": "t.age > 1e999"},
    {"deny": "t1.age > t2.age and " * 500 + "t1.age = t2.age"},
    {"deny": "t.age = '" + "x" * 10_000 + "'"},
    {"deny": "t.age > " + "9" * 5000},
    *({"fd": "age -> age"}, {"key": ["age"] * 2000}),
    *({"file": name, "soft": True} for name in FILES),
]
TEXTS = [
    *("[" * 2000, "{a: " * 2000, "\n".join(" " * level + "a:" for level in range(2000))),
    *("&a [*a]", "*nobody", "<<: *x", "!!python/object/apply:os.system [echo]"),
    *("!!int many", "!!float x", "!!binary aGk=", "!x y", "%YAML 9.9\n---\n", "%TAG ! x\n---\n"),
    *("---\n---\n", "\t", "\x01", "\x85", "\ufeff", "\u2028", "'", '"', '"\\ud800"'),
    *('"\\U00110000"', '"\\xZZ"', "? [a, b]\n: c", "#", "|\n", ">", "- ", ": ", "- - - - - - x"),
    *("9" * 5000, "1e999999999", ".nan", "~", "true", "\r"),
]


def bombs() -> Iterator[str]:
    """Documents that are small on disk and large, deep or endless once read."""
    nested = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    nested += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)
    ]
    yield "\n".join(nested)
    yield "a: &a {b: *a}"
    yield "name: " + "[" * 100_000
    yield "name: " + "9" * 900_000
    yield "name: x\n" * 100_000
    yield "\n".join(f"k{number}: v" for number in range(60_000))
    yield "x" * 2_000_000
    yield ""


def mutants(documents: list[str], seed: int) -> Iterator[str]:
    """Specs without end, each a valid one with one to three changes."""
    rng = random.Random(seed)
    while True:
        text = rng.choice(documents)
        change = rng.choice([_structural, _structural, _textual])
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            text = change(text, rng)
        yield text


def _structural(text: str, rng: random.Random) -> str:
    try:
        content = yaml.safe_load(text)
        places = list(_places(content))
    except (yaml.YAMLError, ValueError, RecursionError):
        places = []
    if not places:
        return _textual(text, rng)
    keys = rng.choice(places)
    parent = _at(content, keys[:-1])
    rng.choice(_CHANGES)(parent, keys[-1], rng)
    return json.dumps(content, default=str)


def _places(content: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, child in children:
        yield (*keys, key)
        yield from _places(child, (*keys, key))


def _at(content: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        content = content[key]
    return content


def _replace(parent: Any, key: Any, rng: random.Random) -> None:
    parent[key] = copy.deepcopy(rng.choice(VALUES))


def _remove(parent: Any, key: Any, rng: random.Random) -> None:
    del parent[key]


def _rename(parent: Any, key: Any, rng: random.Random) -> None:
    if isinstance(parent, dict):
        parent[str(rng.choice([value for value in VALUES if isinstance(value, str)]))] = parent.pop(
            key
        )


def _nest(parent: Any, key: Any, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 5, 100])):
        parent[key] = rng.choice([[parent[key]], {"type": parent[key]}])


def _grow(parent: Any, key: Any, rng: random.Random) -> None:
    if isinstance(parent[key], list):
        parent[key] = parent[key] * rng.choice([2, 50]) + [copy.deepcopy(rng.choice(VALUES))]
    elif isinstance(parent[key], dict):
        parent[key][f"new {rng.random()}"] = copy.deepcopy(rng.choice(VALUES))
    else:
        parent[key] = copy.deepcopy(rng.choice(VALUES))


_CHANGES: list[Callable[[Any, Any, random.Random], None]] = [
    *(_replace, _replace, _replace, _remove, _rename, _nest, _grow)
]


def _textual(text: str, rng: random.Random) -> str:
    at, other = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    cut = min(other, at + rng.choice([1, 1, 3, 40]))
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at] + text[cut:]
    if kind == 1:
        return text[:at] + rng.choice(TEXTS) + text[at:]
    if kind == 2:
        return text[:at] + rng.choice(TEXTS) + text[cut:]
    return text[:at] + text[at:cut] * 2 + text[cut:]
