"""The code of docs/python.md and docs/tutorial.ipynb runs, in order, in an empty home."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger


def late_imports():
    global move_release
    from cloister.flows.review import move_release


DOCS = Path(__file__).parents[2] / "docs"
APPROVE = "approve"

CLINIC = """
name: clinic
source: {path: clinic.csv}
privacy: {unit: row, relation: add_remove, rows: {public: 2000},
  budget: {epsilon: 3, delta: 1e-5, per: year}}
attributes:
  ward: {type: categorical, values: [north, south, east], provenance: house plan}
  age: {type: integer, min: 0, max: 99, bins: 20, provenance: in years}
  nights: {type: integer, min: 0, max: 30, provenance: a transfer after 30}
constraints: []
release: {epsilon: 1, delta: 1e-6}
"""


def approve() -> None:
    """What a reviewer does in a terminal."""
    home = Home.current()
    (release,) = existing_ledger(home).releases()
    move_release(home, release.id, "approved", "A. Officer", "certificate read")


def run(code: str, names: dict[str, object]) -> object:
    """Run code as a notebook does; the value of its last line, if that is an expression."""
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<docs>", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "<docs>", "eval"), names)


@pytest.mark.slow
def test_the_code_of_the_page_runs(folder, prefect_server, brief_training):
    rng = np.random.default_rng(1)
    (folder / "clinic.yaml").write_text(CLINIC)
    wards = rng.choice(["north", "south", "east"], 2_000)
    columns = {name: rng.integers(0, most, 2_000) for name, most in (("age", 99), ("nights", 30))}
    pd.DataFrame({"ward": wards, **columns}).to_csv(folder / "clinic.csv", index=False)
    text = (DOCS / "python.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    shown = []
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        shown.append(run(code, names))
    assert len(shown) >= 5
    results = [names[name] for name in ("forecast", "checked", "released", "figures", "model")]
    assert all(len(repr(result)) < 120 and "\n" not in repr(result) for result in results)
    assert [value for value in shown if isinstance(value, bool | np.bool_)] == [True] * 3
    assert names["released"].folder.is_dir()


@pytest.fixture
def cells() -> list[dict]:
    """The cells of the notebook."""
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return notebook["cells"]


@pytest.mark.slow
def test_the_notebook_is_short_and_kept_without_results(cells):
    assert 8 <= len(cells) <= 12
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in code)
    for cell in code:
        ast.parse("".join(cell["source"]))


@pytest.mark.slow
def test_the_notebook_runs_and_shows_its_results(folder, prefect_server, cells):
    names: dict[str, object] = {}
    shown = []
    for cell in cells:
        if APPROVE in cell["metadata"].get("tags", []):
            approve()
        if cell["cell_type"] == "code":
            shown.append(run("".join(cell["source"]), names))
    pages = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(pages) == 5 and all("<table" in page for page in pages)
    released, more = names["released"], shown[-1]
    assert len(released.frame) == 3_000
    assert not ((released.frame.nights < 3) & released.frame.urgent).any()
    assert len(more) == 5 and set(more.ward) == {"north"}
    assert (folder / "home" / "ledger.db").is_file()
