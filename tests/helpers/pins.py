"""Pins of a redesign: digests of what every method plans, fits and draws, in two checkouts.

    python tests/helpers/pins.py OTHER        compare with another folder or commit
    python tests/helpers/pins.py --integers   write tests/compatibility/pins.json anew
    python tests/helpers/pins.py --digests    print those of this checkout

Each checkout runs its own copy of this program in a process of its own, on this machine: processors
differ in the last bits of floats, so digests are compared and never kept. What is kept are integers
of the plans. The noise is that of an insecure source with a seed.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/shapes")]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from shape import DatabaseShape, Shape, release_database, release_once  # noqa: E402
from specs import spec_of, spec_of_tables  # noqa: E402

from cloister.errors import CloisterError  # noqa: E402
from cloister.models.protocol import make_plan  # noqa: E402
from cloister.models.registry import METHODS, create, over_databases  # noqa: E402
from cloister.models.task import Budget, task_of  # noqa: E402
from cloister.privacy.events import Composed, Event, Parallel  # noqa: E402
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource  # noqa: E402
from cloister.schema.spec import Spec  # noqa: E402

KEPT = ROOT / "tests/compatibility/pins.json"
DRAWN = 500  # rows of the first table
EPSILON, DELTA = 4, "1e-6"
RULES = [
    {"name": "state", "fd": "`home-town` -> state"},
    {"name": "tax", "deny": "t1.`wage €` > t2.`wage €` and t1.tax < t2.tax"},
    {"name": "low", "deny": "t.grade = 'low' and t.`wage €` > 400"},
    {"name": "grades", "deny": "t1.grade < t2.grade and t1.tax > t2.tax", "soft": True},
]
COLUMNS: dict[str, dict[str, Any]] = {
    "home-town": {"type": "categorical", "values": list("ABCDE"), "nullable": True},
    "state": {"type": "categorical", "values": ["x", "y"]},
    "grade": {"type": "ordinal", "values": ["low", "mid", "high"]},
    "wage €": {"type": "integer", "min": 0, "max": 500, "bins": 25, "special": [0]},
    "tax": {"type": "integer", "min": 0, "max": 60},
}


def one_table(rows: int = 400) -> Shape:
    """Columns of every kind under hard rules and a soft one."""
    rng = np.random.default_rng(3)
    town, wage = rng.integers(0, 5, rows), rng.integers(0, 400, rows)
    wage[rng.random(rows) < 0.3] = 0
    towns = np.where(rng.random(rows) < 0.9, np.array(list("ABCDE"))[town], None)
    columns = {
        "home-town": towns,
        "state": np.where(town < 2, "x", "y"),
        "grade": np.array(["low", "mid", "high"])[np.minimum(wage // 130, 2)],
        "wage €": wage,
        "tax": wage // 10,
    }
    return Shape(pd.DataFrame(columns), spec_of("wages", rows, COLUMNS, RULES))


def persons(people: int = 80) -> Shape:
    """Up to four rows of a person, who has one town and state."""
    rng = np.random.default_rng(4)
    owner = np.repeat(np.arange(people), rng.integers(1, 5, people))
    frame = one_table(len(owner)).frame
    for name in ("home-town", "state"):
        frame[name] = frame[name].to_numpy()[owner]
    frame.insert(0, "person", [f"P{number + 1:03d}" for number in owner])
    attributes = {"person": {"type": "text", "pattern": "P{001..999}"}} | COLUMNS
    for name in ("home-town", "state"):
        attributes[name] = attributes[name] | {"per": "person"}
    unit = {"key": "person", "max_rows": 4, "persons": {"public": people}}
    return Shape(frame, spec_of("people", len(frame), attributes, RULES, unit=unit))


def tables(users: int = 60, items: int = 30, rows: int = 200) -> DatabaseShape:
    """Users, items, and at most eight links of a user, no pair twice; a link has an attribute."""
    rng = np.random.default_rng(5)
    pairs = rng.permutation(users * items)[:rows]
    pairs = pairs[pd.Series(pairs // items).groupby(pairs // items).cumcount().to_numpy() < 8]
    user, item = np.sort(pairs) // items, np.sort(pairs) % items
    user_levels, item_levels = rng.integers(0, 4, users), rng.integers(0, 3, items)
    level = {"type": "categorical", "values": ["a", "b", "c", "d"]}
    key = {name: {"type": "text", "pattern": f"{name}{{001..999}}"} for name in "UI"}
    named = {
        "users": {"id": _keys("U", np.arange(users)), "x": np.array(list("abcd"))[user_levels]},
        "items": {"id": _keys("I", np.arange(items)), "y": np.array(list("abcd"))[item_levels]},
        "links": {
            "user": _keys("U", user),
            "item": _keys("I", item),
            "z": np.array(list("abcd"))[(user_levels[user] + item_levels[item]) % 4],
        },
    }
    frames = {name: pd.DataFrame(columns) for name, columns in named.items()}
    declared = {
        "users": {"rows": users, "key": "id", "attributes": {"id": key["U"], "x": level}},
        "items": {"rows": items, "key": "id", "attributes": {"id": key["I"], "y": level}},
        "links": {
            "rows": len(pairs),
            "references": {
                "user": {"table": "users", "max_rows": 8},
                "item": {"table": "items", "max_rows": 40},
            },
            "constraints": [{"key": ["user", "item"]}],
            "attributes": {"user": key["U"], "item": key["I"], "z": level},
        },
    }
    return DatabaseShape(frames, spec_of_tables("links", "users", declared))


def bare(shape: DatabaseShape) -> DatabaseShape:
    """The same links without their attribute, as the paper has them."""
    spec = json.loads(json.dumps(shape.spec))
    del spec["tables"]["links"]["attributes"]["z"]
    links = shape.frames["links"].drop(columns="z")
    return DatabaseShape({**shape.frames, "links": links}, spec)


def _keys(letter: str, numbers: np.ndarray) -> list[str]:
    return [f"{letter}{number + 1:03d}" for number in numbers]


def cases() -> Iterator[tuple[str, str, Shape | DatabaseShape]]:
    """Every method with every shape that it is for."""
    for method in sorted(METHODS):
        if create(method).of_database:
            shape = bare(tables()) if method == "relational-paper" else tables()
            yield f"{method}, several tables", method, shape
            continue
        yield f"{method}, one table", method, _declared(method, one_table())
        yield f"{method}, persons", method, _declared(method, persons())


def _declared(method: str, shape: Shape) -> Shape:
    """Records made from seeds are charged one by one: of so few rows, none fits an epsilon."""
    if len(create(method).guarantees) == 1:
        return shape
    release = {**shape.spec["release"], "guarantee": "plausible-deniability"}
    return Shape(shape.frame, {**shape.spec, "release": release})


def digests() -> dict[str, dict[str, str]]:
    """Of each case: plan, sentences on it, model, and rows drawn; or of why it is refused."""
    return {name: _digests(method, shape) for name, method, shape in cases()}


def _digests(method: str, shape: Shape | DatabaseShape) -> dict[str, str]:
    noise = NoiseSource.insecure(1)
    try:
        if isinstance(shape, DatabaseShape):
            trial = release_database(shape, EPSILON, method, DELTA, noise=noise)
        else:
            trial = release_once(shape, EPSILON, method, DELTA, noise=noise)
    except CloisterError as refusal:
        return {"refused": digest(str(refusal))}
    capacity = trial.model.capacity
    rows = DRAWN if capacity is None else min(DRAWN, capacity)
    drawn = trial.model.sample(rows, SamplingSource(9))
    frames = getattr(drawn, "tables", {"": drawn})
    return {
        "plan": digest([trial.plan.sequence, trial.plan.event, trial.plan.parameters]),
        "sentences": digest([[stage.name, stage.explanation] for stage in trial.plan.stages]),
        "model": digest(trial.model.state()),
        "rows": digest({name: table.frame().to_csv() for name, table in frames.items()}),
    }


def integers() -> dict[str, dict[str, Any]]:
    """Of each case: attributes in sequence, stages, and how often each event happens."""
    return {name: plan_integers(method, shape) for name, method, shape in cases()}


def plan_integers(method: str, shape: Shape | DatabaseShape) -> dict[str, Any]:
    several = isinstance(shape, DatabaseShape)
    frames = shape.frames if several else {shape.spec["name"]: shape.frame}
    rows = {name: len(frame) for name, frame in frames.items()}
    task = task_of(Spec.declared_in(Path(), shape.spec), rows)
    synthesizer = over_databases(create(method))
    try:
        plan = make_plan(synthesizer, task, Budget(Fraction(EPSILON), Fraction(DELTA)))
    except CloisterError:
        return {"refused": 1}
    events = Counter(event.label for event in _single(plan.event))
    return {
        "sequence": len(plan.sequence),
        "stages": len(plan.stages),
        "events": dict(sorted(events.items())),
    }


def _single(event: Event) -> Iterator[Event]:
    """The events that consist of no others, each as often as it happens."""
    if isinstance(event, Composed):
        for part, times in event.parts:
            yield from [*_single(part)] * times
    elif isinstance(event, Parallel):
        for part in event.parts:
            yield from _single(part)
    else:
        yield event


def digest(value: Any) -> str:
    return hashlib.sha256(repr(_plain(value)).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """The value without the names of its types and fields, which a redesign may change."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    if dataclasses.is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return [(key, _plain(value[key])) for key in sorted(value, key=repr)]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def of_checkout(folder: Path) -> dict[str, dict[str, str]]:
    """The digests of a checkout, by its own program."""
    command = [sys.executable, str(folder / "tests/helpers/pins.py"), "--digests"]
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def compare(base: str) -> int:
    """Print each difference to another folder or commit; how many there are."""
    here = of_checkout(ROOT)
    if Path(base).is_dir():
        there = of_checkout(Path(base).resolve())
    else:
        with tempfile.TemporaryDirectory() as folder:
            git = ["git", "-C", str(ROOT), "worktree"]
            subprocess.run([*git, "add", "--quiet", "--detach", folder, base], check=True)
            there = of_checkout(Path(folder))
            subprocess.run([*git, "remove", "--force", folder], check=True)
    names = sorted(here.keys() | there.keys())
    differ = [
        f"{name}: {what}"
        for name in names
        for what in sorted(here.get(name, {}).keys() | there.get(name, {}).keys())
        if here.get(name, {}).get(what) != there.get(name, {}).get(what)
    ]
    print("\n".join([*differ, f"{len(names)} cases, {len(differ)} digests differ from {base}"]))
    return len(differ)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", nargs="?", help="a folder or commit to compare with")
    parser.add_argument("--digests", action="store_true", help="print those of this checkout")
    parser.add_argument("--integers", action="store_true", help=f"write {KEPT.name} anew")
    options = parser.parse_args()
    if options.integers:
        KEPT.write_text(json.dumps(integers(), indent=1) + "\n", encoding="utf-8")
    elif options.digests:
        print(json.dumps(digests(), indent=1))
    elif options.other:
        return min(compare(options.other), 1)
    else:
        parser.error("name another checkout, --digests or --integers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
