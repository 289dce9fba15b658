"""Where the declarations of a spec come from, and which of them name no source."""

import pytest

from cloister.errors import SpecError
from cloister.flows.cli.app import run
from cloister.schema.spec_files import loading
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve

NO_SOURCES = [
    *("", " ", "declared", "data derived", "data_derived", "Derived from the data!", "form"),
    *("from data", "min, max seen", "TODO", "n/a", "our own file"),
]


def test_a_document_is_a_source_and_another_word_for_data_derived_is_none():
    assert all(
        map(loading.cites_a_source, ["form 12", "Civil Code art. 3", "dp: release r-1", "ISO 3166"])
    )
    assert not any(map(loading.cites_a_source, NO_SOURCES))


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


@pytest.fixture
def path(tmp_path):
    (tmp_path / "people.yaml").write_text(SPEC)
    return tmp_path / "people.yaml"


def test_a_check_lists_all_that_is_left_out_and_asks_for_what_is_missing(path, capsys):
    assert run(["spec", "check", str(path)]) == 0
    said = capsys.readouterr()
    line = next(line for line in said.out.splitlines() if "form 12" in line)
    assert "age, sex" in line
    assert "yearbook 2020" in said.out
    assert "2 declarations without a source: ward, town;" in said.err
    assert "about: does not state curator, " in said.err
    path.write_text(SPEC.replace("attributes:", "ignore: [remarks, fax]\nattributes:"))
    for command in ("check", "plan"):
        words = ["plan", "--method", "independent"] if command == "plan" else ["spec", "check"]
        assert run([*words, str(path)]) == 0
        assert "remarks, fax" in capsys.readouterr().out


def test_bounds_and_constraints_are_grouped_by_their_source(path):
    spec = loading.load_spec(path)
    assert loading.citations_of(spec) == {
        "declared": ["id", "sick", "town"],
        "form 12": ["age", "sex"],
        "from the data": ["ward"],
        "yearbook 2020": ["privacy.rows"],
    }
    assert loading.uncited_declarations(spec) == ["ward", "town"]
    path.write_text(SPEC + RULES.replace("PROVENANCE", "house rules 3"))
    spec = loading.load_spec(path)
    assert loading.citations_of(spec)["house rules 3"] == ["of age"]
    assert loading.uncited_declarations(spec) == ["ward", "town", "constraint_2"]


RULES = """\
constraints:
  - {name: of age, deny: "t.age < 18 and t.ward > 20", provenance: PROVENANCE}
  - {fd: town -> ward}
"""


@pytest.mark.parametrize("provenance", ["data-derived", '" Data-derived: all rows agree"'])
def test_a_rule_that_was_read_from_the_data_is_refused(path, provenance):
    path.write_text(SPEC + RULES.replace("PROVENANCE", provenance))
    with pytest.raises(SpecError, match=r"line 17, constraints\.0: was proposed since all rows"):
        resolve(ReleaseRequest(spec=path))


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        ("{curater: x}", "did you mean 'curator'?"),
        ("{curator_type: club}", "write for example curator_type: government"),
        ('{curator: ""}', "should have at least 1 character"),
        (f"{{purpose: {'x' * 2001}}}", "should have at most 2000 characters"),
        ("[a]", "should be a mapping of keys"),
    ],
)
def test_what_a_release_is_about_is_checked(path, about, problem):
    path.write_text(SPEC + f"about: {about}\n")
    with pytest.raises(SpecError) as error:
        loading.load_spec(path)
    assert problem in str(error.value).replace("String ", "")
