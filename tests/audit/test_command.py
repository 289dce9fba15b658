"""The command of the audit: what it says, keeps and refuses, without data and without a charge."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloister.audit.kept import Effort
from cloister.flows.cli.app import run

SPEC = """
name: visits
source: {path: nowhere.csv}
privacy:
  unit: {key: person, max_rows: 4, persons: {public: 60}}
  relation: replace_one
  rows: {public: 150}
  budget: {epsilon: 9, delta: 1e-4, per: year}
attributes:
  person: {type: text, pattern: "P{001..999}"}
  ward: {type: categorical, values: {file: wards.txt}, provenance: house plan}
  floor: {type: integer, min: 0, max: 3, provenance: house plan}
constraints:
  - {name: ward-floor, fd: ward -> floor}
release: {method: auto, epsilon: 1, delta: 1e-5}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def in_process(monkeypatch) -> None:
    """Releases are made here: other processes take longer to start than most tests."""
    monkeypatch.setattr(Effort, "pool", lambda _: ThreadPoolExecutor(1))


def said(capsys, *words: str):
    capsys.readouterr()
    code = run([*words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def audited(capsys, *words: str) -> dict:
    return said(capsys, "audit", *words)


def attacked(capsys, *words: str) -> list[dict]:
    return said(capsys, "attack", *words)


def spec_of(folder: Path, text: str) -> str:
    (folder / "wards.txt").write_text("north\nsouth\neast\n")
    (folder / "visits.yaml").write_text(text)
    return str(folder / "visits.yaml")


def test_releases_are_kept_and_gone_on_with_and_none_is_charged(home, in_process, capsys, tmp_path):
    first = audited(capsys, "independent", "--trials", "20")
    assert first["shown"]["trials"] == 20
    assert first["shown"]["unread"] == first["shown"]["unplanned"] == 0
    kept = list((home / "audits").glob("*.jsonl"))
    lines = [path.read_text().splitlines() for path in kept]
    assert [len(each) for each in lines] == [20]
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: audit -->\n<!-- end: audit -->\n")
    more = audited(capsys, "independent", "--trials", "40", "--markdown", str(page))
    plot = tmp_path / "images" / "audit-trade-offs.png"
    assert plot.is_file() and "(images/audit-trade-offs.png)" in page.read_text()
    assert more["claimed"] == first["claimed"]
    assert kept[0].read_text().splitlines()[:20] == lines[0]
    assert len(kept[0].read_text().splitlines()) == 40
    assert [path.name for path in home.iterdir()] == ["audits"]


@pytest.mark.slow
def test_a_spec_is_audited_without_its_data_by_another_process(home, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    spec = spec_of(tmp_path, SPEC)
    found = audited(capsys, "independent", "--spec", spec, "--trials", "20", "--epsilon", "2")
    assert found["attack"]["unit"] == "key:person"
    assert found["attack"]["relation"] == "replace_one"
    assert found["claimed"] > 0


def test_a_method_without_a_plan_says_so(home, capsys):
    assert run(["audit", "deniability", "--trials", "20"]) == 2
    assert "160 records" in capsys.readouterr().err
    assert run(["audit", "no such method"]) == 2
    assert not home.exists()


def test_tables_and_budgets_of_one_attack_are_refused_for_all_methods(home, capsys):
    for words in (["--spec", "visits.yaml"], ["--epsilon", "2"], ["--delta", "1e-5"]):
        assert run(["audit", *words]) == 2
        assert "name a METHOD" in capsys.readouterr().err
    assert not home.exists()


ROWS = """
name: visits
source: {path: nowhere.csv}
privacy:
  unit: row
  relation: replace_one
  rows: {public: 9000}
  budget: {epsilon: 9, delta: 1e-5, per: year}
attributes:
  ward: {type: categorical, values: {file: wards.txt}, provenance: house plan}
  floor: {type: integer, min: 0, max: 30, provenance: house plan}
constraints:
  - {name: ward-floor, fd: ward -> floor}
release: {method: auto, epsilon: 1, delta: 1e-6}
"""


def test_releases_whose_rows_are_attacked_are_kept_beside_what_there_is_to_find(
    home, in_process, capsys
):
    first = attacked(capsys, "independent", "--releases", "10")
    assert [each["releases"] for each in first] == [10] * 3
    lines = {path: path.read_text() for path in (home / "audits").glob("rows-*.jsonl")}
    more = attacked(capsys, "independent", "--releases", "12")
    assert [each["releases"] for each in more] == [12] * 3
    assert all(path.read_text().startswith(text) for path, text in lines.items())
    _, copies, fresh = more
    assert copies["membership"]["distance"]["auc"] > 0.99 > 0.6 > fresh["ordinary"]["value"]
    assert [path.name for path in home.iterdir()] == ["audits"]


@pytest.mark.slow
def test_rows_by_a_spec_are_attacked_and_the_page_gets_them(home, in_process, capsys, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- generated: rows -->\n<!-- end: rows -->\nafter\n")
    words = ["--spec", spec_of(tmp_path, ROWS), "--releases", "10"]
    (method, *_) = attacked(capsys, "independent", *words, "--markdown", str(page))
    assert method["attack"]["spec"].endswith("visits.yaml")
    text = page.read_text()
    assert "### epsilon 1 of visits.yaml" in text and "| fresh units | row | 10 |" in text
    assert text.startswith("before") and text.endswith("after\n")


def test_units_of_a_spec_are_its_own(home, capsys, tmp_path):
    words = ["independent", "--spec", spec_of(tmp_path, SPEC), "--releases", "10"]
    assert run(["attack", *words, "--unit", "row"]) == 2
    assert "leave out --unit" in capsys.readouterr().err
    assert run(["attack", *words]) == 2
    assert "names at most 999 persons" in capsys.readouterr().err
    assert not home.exists()


@pytest.mark.slow
def test_persons_of_a_spec_are_attacked(home, in_process, capsys, tmp_path):
    spec = spec_of(tmp_path, SPEC.replace("001..999", "00001..99999"))
    results = attacked(capsys, "independent", "--spec", spec, "--releases", "10")
    assert [each["attack"]["unit"] for each in results] == ["key:person"] * 3


@pytest.mark.slow
def test_methods_of_several_tables_are_attacked_beside_their_controls(home, in_process, capsys):
    words = ["relational-independent", "independent", "--releases", "10"]
    results = attacked(capsys, *words)
    units = [(each["attack"]["method"], each["attack"]["unit"]) for each in results]
    assert units == [
        ("relational-independent", "tables"),
        ("independent", "row"),
        ("the data as they are", "tables"),
        ("fresh units", "tables"),
        ("the data as they are", "row"),
        ("fresh units", "row"),
    ]
    areas = [each["membership"]["distance"]["auc"] for each in results]
    assert min(areas[2], areas[4]) > 0.95
    assert max(abs(areas[3] - 0.5), abs(areas[5] - 0.5)) < 0.1


def test_a_method_of_one_table_is_refused_for_several(home, capsys):
    assert run(["attack", "independent", "--unit", "tables"]) == 2
    assert "'independent' is of one table" in capsys.readouterr().err
    assert run(["attack", "relational", "--unit", "person"]) == 2
    assert "'relational' is of several tables" in capsys.readouterr().err
    assert not home.exists()
