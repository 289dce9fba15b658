"""Where the declarations of a spec come from, and which of them name no source."""

import pytest

from cloister.flows.cli.app import run
from cloister.schema.spec_files.loading import (
    citations_of,
    cites_a_source,
    load_spec,
    uncited_declarations,
)


@pytest.mark.parametrize("text", ["form 12", "Civil Code art. 3", "dp: release r-1", "ISO 3166-1"])
def test_a_document_is_a_source(text):
    assert cites_a_source(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "declared", "data derived", "data_derived", "Derived from the data!", "form"),
        *("from data", "min, max seen", "TODO", "n/a", "our own file"),
    ],
)
def test_another_word_for_data_derived_is_none(text):
    assert not cites_a_source(text)


SPEC = """\
name: people
source: {path: people.csv}
privacy:
  unit: row
  relation: add_remove
  rows: {public: 1000, provenance: yearbook 2020}
  budget: {epsilon: 10, delta: 1e-6, per: year}
attributes:
  id: {type: text, pattern: "{1..9999}"}
  sick: {type: boolean}
  age: {type: integer, min: 0, max: 120, provenance: form 12}
  sex: {type: categorical, values: [f, m], provenance: form 12}
  ward: {type: integer, min: 1, max: 40, provenance: from the data}
  town: {type: categorical, values: [a, b]}
release: {epsilon: 1, delta: 1e-7}
"""


def test_a_check_lists_all_and_asks_for_what_is_missing(tmp_path, capsys):
    path = tmp_path / "people.yaml"
    path.write_text(SPEC)
    assert run(["spec", "check", str(path)]) == 0
    said = capsys.readouterr()
    line = next(line for line in said.out.splitlines() if "form 12" in line)
    assert "age, sex" in line
    assert "yearbook 2020" in said.out
    assert "2 declarations without a source: ward, town;" in said.err


def test_columns_that_are_left_out_are_told(tmp_path, capsys):
    path = tmp_path / "people.yaml"
    path.write_text(SPEC.replace("attributes:", "ignore: [remarks, fax]\nattributes:"))
    for command in ("check", "plan"):
        words = ["plan", "--method", "independent"] if command == "plan" else ["spec", "check"]
        assert run([*words, str(path)]) == 0
        assert "remarks, fax" in capsys.readouterr().out


def test_declarations_are_grouped_by_their_source(tmp_path):
    path = tmp_path / "people.yaml"
    path.write_text(SPEC)
    spec = load_spec(path)
    assert citations_of(spec) == {
        "declared": ["id", "sick", "town"],
        "form 12": ["age", "sex"],
        "from the data": ["ward"],
        "yearbook 2020": ["privacy.rows"],
    }
    assert uncited_declarations(spec) == ["ward", "town"]
