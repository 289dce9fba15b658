"""Trees of codes: by prefixes, in a file or written out, and what is wrong with one."""

import re
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import yaml
from diagnoses import diagnoses
from specs import spec_of

from cloister.errors import SpecError
from cloister.schema.codelists import MOST_LEVELS, prefix_lengths, resolve_levels
from cloister.schema.domain import Domain
from cloister.schema.partition import tree_of
from cloister.schema.spec_files.loading import load_spec, spec_digest

CODES = ["A01", "A02", "A11", "B01", "B02", "C"]


def spec_file(folder, hierarchy, values=CODES, nullable=False):
    code = {"type": "categorical", "values": values, "nullable": nullable}
    content = spec_of("codes", 1_000, {"code": code | hierarchy})
    (folder / "codes.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder / "codes.yaml"


def levels_of(folder, hierarchy, **more):
    spec = load_spec(spec_file(folder, hierarchy, **more))
    column = Domain.of(spec.attributes, spec.folder)["code"]
    return [level.parts.tolist() for level in tree_of(column)]


def test_prefixes_make_levels_and_a_shorter_or_missing_value_is_a_node_of_its_own(tmp_path):
    assert levels_of(tmp_path, {"hierarchy": [1, 2]}) == [[0, 0, 0, 1, 1, 2], [0, 0, 1, 2, 2, 3]]
    assert levels_of(tmp_path, {"hierarchy": [1]}, nullable=True) == [[0, 0, 0, 1, 1, 2, 3]]
    assert resolve_levels([1, 2, 3], ["X011", "X012", "X111"], None) == ((0, 0, 1),)


def test_long_codes_have_a_tree_by_prefixes_of_no_more_levels_than_are_counted():
    digits = "0123456"
    codes = [f"A{''.join(code)}" for code in product(digits, repeat=6)]
    assert prefix_lengths(codes) == [2, 3, 4, 5]
    assert len(resolve_levels(prefix_lengths(codes), codes, Path())) == MOST_LEVELS
    assert not prefix_lengths(codes[:50])
    assert not prefix_lengths([f"a word {code}" for code in codes[:1_000]])


def test_a_file_and_parents_written_out_are_the_same_tree(tmp_path):
    parents = {code: code[0] for code in CODES[:5]} | {"C": "rest", "A": "all", "B": "all"}
    lines = [f"{code},{parent}\n" for code, parent in parents.items()]
    (tmp_path / "tree.csv").write_text("".join(lines), encoding="utf-8")
    of_file = levels_of(tmp_path, {"hierarchy": {"file": "tree.csv"}})
    assert of_file == levels_of(tmp_path, {"hierarchy": {"parents": parents}})
    assert of_file == [[0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 2]]


def test_a_spec_without_a_tree_keeps_its_digest_and_one_with_a_file_follows_it(tmp_path):
    plain = spec_digest(load_spec(spec_file(tmp_path, {})))
    (tmp_path / "tree.csv").write_text("".join(f"{code},x{code[0]}\n" for code in CODES))
    first = spec_digest(load_spec(spec_file(tmp_path, {"hierarchy": {"file": "tree.csv"}})))
    (tmp_path / "tree.csv").write_text("".join(f"{code},y{code[:2]}\n" for code in CODES))
    second = spec_digest(load_spec(spec_file(tmp_path, {"hierarchy": {"file": "tree.csv"}})))
    assert len({plain, first, second}) == 3
    assert plain == spec_digest(load_spec(spec_file(tmp_path, {"hierarchy": None})))


@pytest.mark.parametrize(
    ("hierarchy", "words"),
    [
        ([3, 1], "the lengths of prefixes should increase"),
        ([0], "the lengths of prefixes should increase"),
        ([1, 3], "as long as the longest value"),
        ("chapter", "is a list of lengths of prefixes"),
        ([1, "x"], "is a list of lengths of prefixes"),
        ({"file": "nowhere.csv"}, "hierarchy file"),
        ({"file": "three.csv"}, "line 2 of the hierarchy file three.csv is no pair"),
        ({"file": "twice.csv"}, "line 2 of the hierarchy file twice.csv gives 'A01' a second"),
        ({"file": "self.csv"}, "line 1 of the hierarchy file self.csv: 'A01' is its own parent"),
        ({"parents": {"A01": "A"}}, "no parent of the value 'A02'"),
        ({"parents": dict.fromkeys(CODES, "x") | {"x": "y", "y": "x"}}, "goes in a circle"),
    ],
)
def test_what_is_wrong_with_a_tree_is_said_with_its_line_and_a_remedy(tmp_path, hierarchy, words):
    (tmp_path / "three.csv").write_text("A01,A\nA02,A,B\n")
    (tmp_path / "twice.csv").write_text("A01,A\nA01,B\n")
    (tmp_path / "self.csv").write_text("A01,A01\n")
    with pytest.raises(SpecError) as raised:
        load_spec(spec_file(tmp_path, {"hierarchy": hierarchy}))
    assert words in str(raised.value)
    assert "codes.yaml, line 24, attributes.code.hierarchy: " in str(raised.value)


def test_a_draft_proposes_the_prefixes_of_codes_and_none_of_words_or_short_lists(drafted):
    def proposed(codes):
        text, _ = drafted(pd.DataFrame({"code": codes, "other": ["a", "b"] * (len(codes) // 2)}))
        line = next(line for line in text.splitlines() if "  code:" in line)
        return re.findall(r"hierarchy: (\[[0-9, ]+\])", line)

    assert proposed(diagnoses(5_000).frame["code"].tolist()) == ["[1]"]
    postal = [f"{10_000 + 137 * number % 9_000}" for number in range(400)]
    assert proposed(postal * 10) == ["[2, 3]"]
    assert not proposed([f"A{number % 40:02d}" for number in range(1_000)])
    assert not proposed([f"street number {number % 300}" for number in range(6_000)])
