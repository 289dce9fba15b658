"""Prints the test files nearest to changed modules, of a tenth of the suite's time (``make near``).

Near is a test file that imports a changed module, by its own name or as its package has it, and
the nearer the fewer others it imports.
Without names of files the changed ones are those that git shows against the branch's base.
"""

import ast
import sys
from pathlib import Path

from balanced import NEW, Balanced
from selected import ROOT, changed

PACKAGES = ("cloister/", "models/", "tasks/", "flows/")
SHARE = 0.1


def modules_of(test: Path) -> set[str]:
    """The modules of the packages that a test file names in its imports."""
    names = set()
    for node in ast.walk(ast.parse(test.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    return {name for name in names if name.startswith("cloister.")}


def name_of(path: str) -> str:
    """The module in a file."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.startswith("cloister") else f"cloister.{name}"


def nearest(paths: list[str]) -> list[str]:
    """The changed test files, and those near the changed modules that fit into the time."""
    found = [path for path in paths if path.startswith("tests/") and "/test_" in path]
    modules = {name_of(path) for path in paths if path.startswith(PACKAGES)}
    wanted = modules | {name.rpartition(".")[0] for name in modules}
    tests = (path for path in (ROOT / "tests").rglob("test_*.py") if "benchmarks" not in path.parts)
    imports = {path: modules_of(path) for path in tests}
    left = SHARE * sum(Balanced.seconds.values())
    for test in sorted(imports, key=lambda test: (len(imports[test] - wanted), str(test))):
        name = str(test.relative_to(ROOT))
        seconds = Balanced.seconds.get(name, NEW)
        if imports[test] & wanted and seconds <= left and name not in found:
            found, left = [*found, name], left - seconds
    return found


if __name__ == "__main__":
    found = nearest(sys.argv[1:] or sorted(changed()))
    print(*found)
    sys.exit(None if found else "no test file imports what changed: make test")
