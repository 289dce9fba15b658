"""Spec files: what is read, and the message for each mistake."""

from fractions import Fraction
from pathlib import Path

import pytest

from cloister.errors import SpecError, StorageError
from cloister.schema.attributes import Integer
from cloister.schema.codelists import resolve_values
from cloister.schema.spec import PersonUnit
from cloister.schema.spec_files.loading import data_derived, load_spec, spec_digest

VALID = """\
name: people
source: {path: people.csv}
privacy: {unit: row, relation: add_remove, rows: {public: 1000}, \
budget: {epsilon: 10, delta: 1e-6, per: year}}
attributes:
  age: {type: integer, min: 17, max: 90}
  colour: {type: categorical, values: [red, no, 010, 1:30]}
  "odd, `name`": {type: boolean, true: on, false: off, nullable: true}
  day: {type: date, min: 2000-01-01, max: 2020-12-31, provenance: data-derived}
constraints:
  - {fd: colour -> age, soft: true}
release: {epsilon: 0.1, delta: 1e-7}
evaluation: {targets: {age: {above: 40}, colour: [red]}}
"""


INTEGER = "type: integer, min: 17, max: 90"


def _load(folder: Path, text: str | bytes):
    path = folder / "people.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_spec(path)


def _error(folder: Path, text: str | bytes) -> str:
    with pytest.raises(SpecError) as caught:
        _load(folder, text)
    return str(caught.value)


def test_a_spec_is_read_as_written(tmp_path):
    spec = _load(tmp_path, VALID)
    assert list(spec.attributes) == ["age", "colour", "odd, `name`", "day"]
    assert spec.attributes["age"] == Integer(type="integer", min=17, max=90)
    assert spec.attributes["colour"].values == ["red", "no", "010", "1:30"]
    odd = spec.attributes["odd, `name`"]
    assert (odd.true, odd.false) == ("on", "off")
    assert (spec.release.epsilon, spec.release.delta) == (Fraction(1, 10), Fraction(1, 10**7))
    assert spec.privacy.budget.delta == Fraction(1, 10**6)
    assert spec.source.missing == ("",)
    assert spec.constraints[0].soft
    assert spec.folder == tmp_path
    assert data_derived(spec) == ["day"]
    spec = _load(tmp_path, VALID.replace("unit: row", "unit: {key: age, max_rows: 3}"))
    assert spec.privacy.unit == PersonUnit(key="age", max_rows=3)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("name: people", "name: pe ople", 1, "name"),
        ("{path: people.csv}", "{paht: people.csv}", 2, "did you mean 'path'?"),
        (".csv}", ".csv, url: 'sqlite://', table: t}", 2, "either path or url"),
        ("{path: people.csv}", "{url: 'sqlite://'}", 2, "url and table go together"),
        (".csv}", ".csv}\nunconfirmed: [kinds]", 3, "should be 'names', 'encoding'"),
        (".csv}", ".csv}\nunconfirmed: names", 3, "write for example unconfirmed: [types]"),
        ("unit: row", "unit: rows", 3, "privacy.unit"),
        ("unit: row", "unit: {key: aeg, max_rows: 2}", 3, "did you mean 'age'?"),
        ("max: 90", "max: 90, per: person", 5, "there are no persons here"),
        ("max: 90", "max: 90, per: month", 5, "write for example per: person"),
        (": row", ": {key: age, max_rows: 2, persons: {public: 9}}", 5, "persons need a text key"),
        (": row", ": {key: age, max_rows: 2, order: dya}", 3, "did you mean 'day'?"),
        (": row", ": {key: age, max_rows: 2, order: colour}", 3, "has no order; name"),
        (": row", ": {key: age, max_rows: 1, order: day}", 3, "max_rows is 1"),
        ("relation: add_remove, ", "", 3, "is missing; write for example relation: add_remove"),
        ("{public: 1000}", "{public: 1000, measured: true}", 3, "privacy.rows"),
        ("per: year", "per: week", 3, "'year', 'month' or 'ever'"),
        ("type: integer", "type: integr", 5, "did you mean 'integer'?"),
        ("type: integer, ", "", 5, "the key 'type' is missing"),
        ("max: 90", "max: 90, nulable: true", 5, "did you mean 'nullable'?"),
        ("min: 17", "min: 170", 5, "min is greater than max"),
        (INTEGER, 'type: text, pattern: "P{1..9}", missing_share: 0.5', 5, "write nullable: true"),
        ("min: 17", "min: .nan", 5, "attributes.age.min"),
        ("max: 90", "max: 9999999999999999999", 5, "18 digits"),
        ("[red, no, 010, 1:30]", "[]", 6, "is empty"),
        ("[red, no, 010, 1:30]", "[red, red]", 6, "more than once"),
        ("[red, no, 010, 1:30]", "[red, 3]", 6, "put quotes around the numbers"),
        ("[red, no, 010, 1:30]", "[red, true]", 6, "type boolean"),
        ("[red, no, 010, 1:30]", '[red, ""]', 6, "missing token"),
        ("[red, no, 010, 1:30]", "red", 6, "is a list of texts or numbers"),
        ("[red, no, 010, 1:30]", "{file: none.txt}", 6, "cannot be read"),
        ("[red, no, 010, 1:30]", "{pattern: red}", 6, "numbered range"),
        ("true: on, false: off", "true: on, false: on", 7, "same word"),
        ("min: 2000-01-01", "min: 2000-13-01", 8, "attributes.day.min"),
        ("fd: colour -> age", "fdd: colour -> age", 10, "did you mean 'fd'?"),
        ("fd: colour -> age", "fd: a -> b, key: [a]", 10, "exactly one of fd, deny, check, key"),
        ("epsilon: 0.1", "epsilon: .nan", 11, "release.epsilon: should be a finite number"),
        ("epsilon: 0.1", "epsilon: NaN", 11, "release.epsilon"),
        ("epsilon: 0.1", "epsilon: 0", 11, "should be greater than 0"),
        ("epsilon: 0.1", "epsilon: -1", 11, "should be greater than 0"),
        ("epsilon: 0.1", "epsilon: .inf", 11, "should be a finite number"),
        ("delta: 1e-7", "delta: 1e-3", 11, "less than 1 / rows = 1 / 1000"),
        ("delta: 1e-7", "delta: -1e-3", 11, "release.delta"),
        ("age: {above: 40}", "aeg: {above: 40}", 12, "did you mean 'age'?"),
        ("age: {above: 40}", "age: [40]", 12, "exchange the form"),
        ("colour: [red]", "colour: [blue]", 12, "does not list"),
        ("colour: [red]", "colour: 3", 12, "evaluation.targets.colour"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_remedy(tmp_path, old, new, line, words):
    assert old in VALID
    message = _error(tmp_path, VALID.replace(old, new))
    assert f"line {line}" in message
    assert words in message
    assert "\n" not in message


def test_all_mistakes_are_told_at_once_in_the_order_of_lines(tmp_path):
    broken = VALID.replace("unit: row", "unit: rows").replace("min: 17", "mim: 17")
    broken = broken.replace("0.1", "zero")
    lines = _error(tmp_path, broken).splitlines()
    assert lines[0].endswith("people.yaml has 4 problems:")
    assert [line.split(":")[0] for line in lines[1:]] == [
        "  line 3, privacy.unit",
        "  line 5, attributes.age.min",
        "  line 5, attributes.age.mim",
        "  line 11, release.epsilon",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (VALID + "name: again\n", "line 13, name: the key is also on line 1"),
        (VALID.replace("  colour:", "  age:"), "line 6, attributes.age: the key is also on line 5"),
        (VALID.replace("  colour:", "\tcolour:"), "line 6: a tab"),
        (VALID.replace("1:30]", "1:30"), "line 6"),
        (VALID.encode().replace(b"red", b"r\xff"), "line 6: not UTF-8"),
        ("", "holds no mapping"),
        ("- a\n- b\n", "holds no mapping"),
        ("a: &x [*x]\n", "contains itself"),
        ("{a: 1}: 2\n", "line 1: a key must be text"),
        ("a: \x00\n", "not YAML"),
    ],
)
def test_text_that_is_no_spec_is_refused(tmp_path, text, words):
    assert words in _error(tmp_path, text)


def test_files_that_cannot_be_read_are_storage_errors(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(StorageError, match="cannot be read"):
            load_spec(path)
    spec = _load(tmp_path, VALID.replace("- {fd: colour -> age, soft: true}", '- {file: "a\\0"}'))
    with pytest.raises(StorageError, match="no file has such a name"):
        spec_digest(spec)


OF_A_FILE = VALID.replace("[red, no, 010, 1:30]", "{file: codes.txt}")
OF_A_FILE = OF_A_FILE.replace(", colour: [red]", "")


def test_lists_come_from_files_and_patterns(tmp_path):
    (tmp_path / "codes.txt").write_text("b\n\na b\n", encoding="utf-8")
    for source, values in (
        ("{file: codes.txt}", "b,a b"),
        ("{pattern: 'z{008..011}x'}", "z008x,z009x,z010x,z011x"),
        ("{pattern: '{9..11}'}", "9,10,11"),
    ):
        spec = _load(tmp_path, OF_A_FILE.replace("{file: codes.txt}", source))
        assert ",".join(resolve_values(spec.attributes["colour"].values, spec.folder)) == values
    assert resolve_values([1, 2.5], tmp_path) == (1.0, 2.5)


def test_the_digest_follows_content_not_layout(tmp_path):
    (tmp_path / "codes.txt").write_text("a\nb\n", encoding="utf-8")
    digest, text = spec_digest(_load(tmp_path, OF_A_FILE)), OF_A_FILE
    assert len(digest) == 64
    for changed, same in (
        ("# a comment\n" + text.replace("1e-7", "0.0000001"), True),
        (text + "unconfirmed: [types]\n", True),
        (text + "about: {curator: }\n", True),
        (text + "about: {curator: Office}\n", False),
        (text.replace("max: 90", "max: 91"), False),
    ):
        assert (spec_digest(_load(tmp_path, changed)) == digest) is same
    (tmp_path / "codes.txt").write_text("a\nc\n", encoding="utf-8")
    assert spec_digest(_load(tmp_path, text)) != digest
