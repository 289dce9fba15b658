"""What share of small faults in the code the default suite catches: a program of ``make nightly``.

    python tests/helpers/mutants.py [--tree FOLDER] [--most N]

It changes one operator, constant or statement at a time, at places drawn with a fixed seed, and
runs the tests that reach the changed function, the cheapest first, until one fails. Which tests
reach which function is found by one run of the suite on a copy in which functions report their
calls, child processes included. Run again on the same tree, it goes on where it stopped. SIGINT
counts as sent to the whole process group: the program waits for its tests, and records nothing of
those that were interrupted.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import fcntl
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from nightly import STOP, Record

ROOT = Path(__file__).parents[2]
MUTATED = ("cloister/privacy", "models/core", "models/sampling", "tasks/ledger", "tasks/release")
MUTANTS, SEED = 60, 20261127
AT_ONCE = 2  # mutants, each of which keeps one core busy
MOST_LIVING = 0.3  # share of mutants above which the part fails; not yet set by a whole count
BATCHES = (15.0, 60.0)  # seconds of tests that run before the others are collected
OPERATORS: dict[type, str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Pow: "*",
    ast.And: "or", ast.Or: "and",
}  # fmt: skip
"""What stands in place of an operator."""


@dataclass(frozen=True)
class Mutant:
    """A text in place of another one in a file."""

    file: str
    line: int
    function: int | None
    """The line of the function, in which a call is reported; None beside functions."""
    compiled: bool
    start: int
    end: int
    text: str
    """Bytes of the file that are replaced, and what replaces them."""

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def shown(self, source: bytes) -> str:
        before = " ".join(source[self.start : self.end].decode().split())
        return f"{self.file}:{self.line} `{before[:60]}` -> `{self.text[:60]}`"


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """All mutants of a file, in the order of its text."""
    tree, starts = ast.parse(source), [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, function: int | None, compiled: bool) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            compiled = any("jit" in ast.unparse(each) for each in node.decorator_list)
            function = None if compiled else node.body[0].lineno
        for start, end, text, line in changes(node):
            yield Mutant(file, line, function, compiled, start, end, text)
        for child in ast.iter_child_nodes(node):
            if not skipped(node, child):
                yield from walk(child, function, compiled)

    def changes(node: ast.AST) -> Iterator[tuple[int, int, str, int]]:
        if not hasattr(node, "end_lineno"):
            return
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        for text in filter(_parses, replacements(node)):
            yield start, end, text, node.lineno

    yield from walk(tree, None, False)


def skipped(node: ast.AST, child: ast.AST) -> bool:
    """Texts, types and messages: no change of them is one of behaviour."""
    annotation = getattr(node, "annotation", None) is child or getattr(node, "returns", None)
    typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
    message = isinstance(node, ast.Raise) or isinstance(child, ast.JoinedStr)
    return annotation is child or annotation is True or typing or message


def replacements(node: ast.AST) -> Iterator[str]:
    """Texts that a mutant has in place of a node."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPERATORS:
            sign = OPERATORS[type(operator)]
            yield f"({ast.unparse(node.left)} {sign} {ast.unparse(node.comparators[0])})"
        case ast.BinOp() if type(node.op) in OPERATORS:
            yield f"({ast.unparse(node.left)} {OPERATORS[type(node.op)]} {ast.unparse(node.right)})"
        case ast.BoolOp():
            sign = f" {OPERATORS[type(node.op)]} "
            yield f"({sign.join(f'({ast.unparse(each)})' for each in node.values)})"
        case ast.UnaryOp(op=ast.Not()):
            yield f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool()):
            yield str(not node.value)
        case ast.Constant(value=int() | float()):
            yield str(node.value + 1)
        case ast.Raise() | ast.AugAssign() | ast.Delete():
            yield "pass"
        case ast.Expr(value=ast.Call()):
            yield "pass"


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:  # `ast.unparse` writes `a == not b` without its parentheses
        return False
    return True


def chosen(tree: Path, most: int) -> list[Mutant]:
    """The mutants of a tree: those of a seed, whatever the tests are."""
    found = [
        mutant
        for folder in MUTATED
        for path in sorted((tree / folder).rglob("*.py"))
        for mutant in mutants_of(str(path.relative_to(tree)), path.read_bytes())
    ]
    return random.Random(SEED).sample(found, MUTANTS)[:most]


def copied(tree: Path, folder: Path) -> Path:
    """A copy of the files of a tree that git knows, with the tests' view of a checkout."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = ["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others"]
    names = subprocess.check_output([*listed, "--exclude-standard"], text=True)
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, folder / name, follow_symlinks=False)
    return folder


def reporting(source: bytes, file: str) -> bytes:
    """The text in which each function that is not compiled reports that it was called."""
    inserted: dict[int, tuple[int, str]] = {}
    for node in ast.walk(ast.parse(source)):
        compiled = isinstance(node, ast.FunctionDef) and any(
            "jit" in ast.unparse(each) for each in node.decorator_list
        )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not compiled:
            first = node.body[0]
            if first.lineno > node.lineno:
                call = f"reached_by_a_test({f'{file}:{first.lineno}'!r})"
                place = node.body[1] if ast.get_docstring(node) and node.body[1:] else first
                decorators = getattr(place, "decorator_list", None) or [place]
                inserted[decorators[0].lineno] = (place.col_offset, call)
    lines = source.decode().splitlines(keepends=True)
    for number, (indent, call) in sorted(inserted.items(), reverse=True):
        lines.insert(number - 1, f"{' ' * indent}{call}\n")
    return "".join(lines).encode()


PROBE = """

def _report(seen=set()):
    import builtins, os
    def reached(function):
        if function not in seen and "MUTANTS_REACHED" in os.environ:
            seen.add(function)
            with open(os.environ["MUTANTS_REACHED"], "a") as file:
                file.write(function + chr(10))
    builtins.reached_by_a_test, builtins.reached_functions = reached, seen
_report()
"""


class Reached:
    """Records which functions each test reaches, with those of the fixtures that it uses."""

    def __init__(self, folder: Path) -> None:
        self.worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        self.folder, self.calls = folder, folder / f"{self.worker}.calls"
        self.functions: dict[str, set[str]] = defaultdict(set)
        self.fixtures: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        os.environ["MUTANTS_REACHED"] = str(self.calls)

    def taken(self) -> set[str]:
        """What was reached since the last time."""
        getattr(builtins, "reached_functions", set()).clear()
        lines = self.calls.read_text().split() if self.calls.exists() else []
        self.calls.write_text("")
        return set(lines)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        self.functions[request._pyfuncitem.nodeid] |= self.taken()
        result = yield
        if fixturedef.scope != "function":
            self.functions[f"fixture {fixturedef.baseid}::{fixturedef.argname}"] |= self.taken()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self.taken()
        result = yield
        self.functions[item.nodeid] |= self.taken()
        self.fixtures[item.nodeid] = [
            f"fixture {each.baseid}::{each.argname}"
            for defined in item._fixtureinfo.name2fixturedefs.values()
            for each in defined
            if each.scope != "function"
        ]
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        record = {
            "functions": {name: sorted(each) for name, each in self.functions.items()},
            "fixtures": self.fixtures,
            "seconds": self.seconds,
            "failed": sorted(self.failed),
        }
        (self.folder / f"{self.worker}.json").write_text(json.dumps(record))


def pytest_configure(config: pytest.Config) -> None:
    """Record what tests reach."""
    if not config.getoption("numprocesses", None):
        config.pluginmanager.register(Reached(Path(os.environ["MUTANTS_FOLDER"])))


@dataclass(frozen=True)
class Net:
    """Which tests reach which function, their seconds, and those that fail without a fault."""

    functions: dict[str, set[str]]
    reach: Counter[str]
    """How many functions each test reaches."""
    seconds: dict[str, float]
    failed: set[str]

    @classmethod
    def of(cls, folder: Path) -> Net:
        functions, seconds, failed = defaultdict(set), {}, set()
        for path in folder.glob("*.json"):
            record = json.loads(path.read_text())
            seconds |= record["seconds"]
            failed |= set(record["failed"])
            for test, fixtures in record["fixtures"].items():
                for name in (test, *fixtures):
                    for function in record["functions"].get(name, ()):
                        functions[function].add(test)
        reach = Counter(test for tests in functions.values() for test in tests)
        return cls(functions, reach, seconds, failed)

    def tests(self, mutant: Mutant) -> list[str]:
        """Those that reach a mutant; beside functions, those of its file.

        Those that reach the fewest functions come first: they are about the mutated one.
        """
        if mutant.function is None:
            near = [f for f in self.functions if f.rpartition(":")[0] == mutant.file]
        else:
            near = [f"{mutant.file}:{mutant.function}"]
        reaching = {test for each in near for test in self.functions.get(each, ())} - self.failed
        return sorted(reaching, key=lambda test: (self.reach[test], self.seconds[test], test))


def environment(tree: Path, folder: Path, **more: str) -> dict[str, str]:
    """Of a run of tests in a copy."""
    data = os.environ.get("CLOISTER_DATA", str(ROOT.parent / "shared/data"))
    return os.environ | {
        "CLOISTER_DATA": str(Path(data).resolve()),
        "MUTANTS_FOLDER": str(folder),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{tree}{os.pathsep}{Path(__file__).parent}",
        **more,
    }


class Stopped(Exception):
    """A signal came while tests ran: what they say is no result."""


def run_tests(words: list[str], copy: Path, lock: int, **options: Any) -> Any:
    """Run pytest in a copy; it inherits the lock, which lasts until both processes end.

    Raises:
        Stopped: when pytest has ended, or before it starts.
    """
    if STOP.is_set():
        raise Stopped
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=copy, check=False, pass_fds=[lock], **options)
    if STOP.is_set():
        raise Stopped
    return done


def net(tree: Path, folder: Path, lock: int) -> Net:
    """The net of a tree, found by a run of its suite unless one was recorded."""
    if not (folder / "net").exists():
        copy = copied(tree, folder / "probed")
        for place in MUTATED:
            for path in (copy / place).rglob("*.py"):
                path.write_bytes(reporting(path.read_bytes(), str(path.relative_to(copy))))
        with (copy / "cloister/__init__.py").open("a") as file:
            file.write(PROBE)
        made = folder / "net.part"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        words = ["-p", "mutants", "-p", "times", "--numprocesses", "2", "--dist", "loadfile"]
        run_tests(words, copy, lock, env=environment(copy, made))
        made.rename(folder / "net")
        shutil.rmtree(copy)
    return Net.of(folder / "net")


def batches(tests: list[str], seconds: dict[str, float], most: float) -> Iterator[list[str]]:
    """The tests in groups: few first, and all that begin within ``most`` seconds."""
    begin, spent = 0, 0.0
    for longest in (*BATCHES, most):
        end = begin
        while end < len(tests) and spent < min(longest, most):
            spent, end = spent + seconds[tests[end]], end + 1
        if tests[begin:end]:
            yield tests[begin:end]
        begin = end


def killer(mutant: Mutant, copy: Path, batches: Iterator[list[str]], lock: int) -> str | None:
    """The test that fails on a mutant; None if it lives."""
    path = copy / mutant.file
    source, stat = path.read_bytes(), path.stat()
    path.write_bytes(mutant.applied(source))
    compiled = {"NUMBA_CACHE_DIR": str(copy / "build/numba")} if mutant.compiled else {}
    try:
        for batch in batches:
            (copy / "tests.txt").write_text("".join(f"{test}\n" for test in batch))
            variables = environment(copy, copy, PYTHONDONTWRITEBYTECODE="1", **compiled)
            words = ["-x", "--timeout=300", "@tests.txt"]
            done = run_tests(words, copy, lock, env=variables, capture_output=True, text=True)
            if done.returncode:
                failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
                return failed[1] if failed else f"exit {done.returncode}"
    finally:
        shutil.rmtree(copy / "build/numba", ignore_errors=True)
        path.write_bytes(source)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return None


def killers(folder: Path) -> dict[str, str]:
    """The tests that killed mutants of other commits, by the names of these; they run first."""
    records = (Record(path).of("mutant") for path in folder.glob("*/mutants.jsonl"))
    return {name: each["by"] for record in records for name, each in record.items() if each["by"]}


def main() -> int:
    """Run what is left; 0 if as many mutants were killed as must be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="a checkout")
    parser.add_argument("--most", type=int, default=MUTANTS, help="the first so many mutants")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="of the nearest tests that each gets"
    )
    options = parser.parse_args()
    tree = options.tree.resolve()
    head = subprocess.check_output(["git", "-C", str(tree), "rev-parse", "HEAD"], text=True)[:12]
    folder = ROOT / ".nightly/mutants" / head
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        parser.error(f"another run, or a test that it left, still uses {folder}: wait or end it")
    signal.signal(signal.SIGINT, lambda *_: STOP.set())
    try:
        return tried(tree, folder, options, lock)
    except Stopped:
        return 128 + signal.SIGINT


def tried(tree: Path, folder: Path, options: argparse.Namespace, lock: int) -> int:
    """Try the mutants of a tree that are left; whether too many live."""
    reaching, mutants = net(tree, folder, lock), chosen(tree, options.most)
    record = Record(folder / "mutants.jsonl")
    ended, before = record.of("mutant"), killers(folder.parent)
    copies: Queue[Path] = Queue()
    for number in range(AT_ONCE):
        copies.put(copied(tree, folder / f"copy-{number}"))

    def result(mutant: Mutant) -> dict[str, Any]:
        name = mutant.shown((tree / mutant.file).read_bytes())
        if name not in ended:
            tests = reaching.tests(mutant)
            tests.sort(key=lambda test: test != before.get(name))
            grouped, copy = batches(tests, reaching.seconds, options.seconds), copies.get()
            try:
                by = killer(mutant, copy, grouped, lock)
            finally:
                copies.put(copy)
            record.add("mutant", name, tests=len(tests), by=by)
            ended[name] = {"name": name, "tests": len(tests), "by": by}
        return ended[name]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        results = list(threads.map(result, mutants))
    living = [each for each in results if each["by"] is None]
    print(f"{len(results) - len(living)} of {len(results)} mutants killed. Living:")
    for each in living:
        print(f"  {each['name']} ({each['tests']} tests reach it)")
    if night := os.environ.get("NIGHTLY_RECORD"):
        for each in results:
            state = "living" if each in living else "killed"
            Record(Path(night)).add(
                "test", f"mutants: {each['name']}", outcome="passed", figures=[["mutants", state]]
            )
    return int(len(living) / len(results) > MOST_LIVING)


if __name__ == "__main__":
    sys.exit(main())
