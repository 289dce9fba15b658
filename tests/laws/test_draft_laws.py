"""Nothing in a draft that one row decides is published without confirmation or noise."""

from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloister.errors import SpecError
from cloister.privacy.discovery import attribute_outline, discover
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateColumns
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema.attributes import Categorical, Datetime, Float, Integer, TextKey
from cloister.schema.drafts.drafting import draft
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.yaml_text import read_marked, spec_text
from cloister.tasks.requests import measurement
from cloister.tasks.requests.measurement import domain_context, domain_request, to_measure
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import ResolvedRequest, resolve


def late_imports():
    global measured_content
    from cloister.tasks.release.measure import measured_content


ROWS = 60
UNCONFIRMED = (
    "names of columns, source.encoding, source.delimiter, source.decimal and source.thousands, "
    "source.missing and missing of attributes, columns to ignore, types"
)
TYPE_KEYS = ("type", "true", "false", "dtype", "format", "missing")
ASKED = {"epsilon": "8", "delta": "5e-7", "by": "tester"}

# Cells that change what a draft says of their column, or of the file.
HOSTILE = {
    "id": ["P-00001", "Q-0007", "x", "?", ""],
    "age": ["?", "unknown", "", "7.25", "007", "-3", "999999", "1e3", "NA"],
    "paid": ["?", "none", "", "1.125", "1e300", "0.0001", "0"],
    "member": ["maybe", "Yes", "?", "", "NULL", "1"],
    "born": ["05/06/2021", "2021-05-06T10:00:00", "1066-01-01", "9999-12-31", "?", ""],
    "seen": ["2021-05-06T10:00:07", "2021-05-06", "yesterday", "", "NA"],
    "city": ["Atlantis", "7", "NaN", "", "a;b;c;d", 'a "quoted", word', "two\nlines", "city"],
}


def table() -> pd.DataFrame:
    rng = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "id": [f"P-{number:04d}" for number in range(ROWS)],
            "age": rng.integers(18, 80, ROWS).astype(str),
            "paid": [f"{amount:.2f}" for amount in rng.uniform(1, 900, ROWS)],
            "member": rng.choice(["yes", "no"], ROWS),
            "born": [f"{year}-03-04" for year in rng.integers(1940, 2000, ROWS)],
            "seen": [f"2024-05-06T07:{minute:02d}:00" for minute in rng.integers(0, 60, ROWS)],
            "city": rng.choice(["Rome", "Oslo"], ROWS),
        }
    )


def with_row(row: dict[str, str]) -> pd.DataFrame:
    """The table and one additional row: an ordinary one, with hostile cells in it."""
    ordinary = {"id": f"P-{ROWS:04d}", **table().iloc[0, 1:]}
    return pd.concat([table(), pd.DataFrame([ordinary | row])], ignore_index=True)


LISTED = partial(Categorical, type="categorical")
hostile_rows = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(cells) for name, cells in HOSTILE.items()}
).filter(bool)


@dataclass(frozen=True)
class Known:
    """A table whose draft was confirmed unchanged: draft, order, journal and measured spec."""

    draft: dict[str, Any]
    order: ResolvedRequest
    answers: Path
    text: str


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Known:
    folder = tmp_path_factory.mktemp("plain")
    content = drafted(folder, table())
    order, answers = order_of(folder, confirmed(content, content)), folder / "journal"
    return Known(content, order, answers, measured(order, answers, order))


def drafted(folder: Path, frame: pd.DataFrame) -> dict[str, Any]:
    """The plain values of the draft that a table in a folder gets."""
    frame.to_csv(folder / "people.csv", index=False)
    with chdir(folder):
        (folder / "draft.yaml").write_text(draft(Path("people.csv")), encoding="utf-8")
    content: dict[str, Any] = read_marked(folder / "draft.yaml").content
    return content


def confirmed(content: dict[str, Any], declared: dict[str, Any]) -> dict[str, Any]:
    """A draft whose names, source, ignored columns and types a person has put as they know them."""
    attributes = {}
    for name, known in declared["attributes"].items():
        own = content["attributes"][name]
        rest = own if own["type"] == known["type"] else known
        types = {key: known[key] for key in TYPE_KEYS if key in known}
        attributes[name] = {key: rest[key] for key in rest if key not in TYPE_KEYS} | types
    kept = {key: value for key, value in content.items() if key != "unconfirmed"}
    return kept | {"attributes": attributes} | {key: declared[key] for key in ("source", "ignore")}


def order_of(folder: Path, content: dict[str, Any]) -> ResolvedRequest:
    (folder / "confirmed.yaml").write_text(spec_text(content), encoding="utf-8")
    return domain_request(ReleaseRequest(spec=folder / "confirmed.yaml", **ASKED))


def measured(order: ResolvedRequest, answers: Path, planned: ResolvedRequest) -> str:
    """The spec that an order measures; answers are read of the journal, or drawn and kept there."""
    made = measurement.domain_plan(planned)
    with Journal.open(answers, {"test": "drafts"}) as journal, chdir(order.spec.parent):
        frame = read_frame(domain_context(order).spec)
        noise = NoiseSource.insecure(5)
        private = PrivateColumns(frame, b"k" * 32, Neighbours(), made.event, journal, noise)
        found = discover(private, made, lambda *_: None)
    return spec_text(measured_content(read_marked(order.spec).content, order, "r-0", found))


@settings(max_examples=examples(20))
@given(hostile_rows)
@example({"paid": "1e300"})  # its bounds had more digits than a spec may declare
def test_what_one_row_decides_is_refused_or_measured(tmp_path_factory, plain, row):
    """What may differ between drafts of neighbours is marked, and gone once declared alike."""
    folder = tmp_path_factory.mktemp("hostile")
    other = drafted(folder, with_row(row))
    for content in (plain.draft, other):
        assert content["unconfirmed"] == plain.draft["unconfirmed"]
        assert {keys["provenance"] for keys in content["attributes"].values()} == {"data-derived"}
    assert {key for key in other if plain.draft[key] != other[key]} <= {"source", "attributes"}
    for refuse in (domain_request, resolve):
        with pytest.raises(SpecError, match=UNCONFIRMED):
            refuse(ReleaseRequest(spec=folder / "draft.yaml", **ASKED))

    order = order_of(folder, confirmed(other, plain.draft))
    assert order.digest == plain.order.digest
    assert to_measure(domain_context(order).spec) == to_measure(domain_context(plain.order).spec)
    assert measured(order, plain.answers, plain.order) == plain.text


def test_what_a_person_declares_otherwise_is_measured_so(tmp_path, plain):
    """The law above is not one of constants."""
    decimal = {"type": "float", "min": 0, "max": 1, "provenance": "data-derived"}
    declared = plain.draft | {"attributes": plain.draft["attributes"] | {"age": decimal}}
    order = order_of(tmp_path, confirmed(drafted(tmp_path, table()), declared))
    assert order.digest != plain.order.digest
    assert measured(order, tmp_path / "journal", order) != plain.text


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (
            partial(Integer, type="integer"),
            {"min": 0, "max": 7, "bins": 3, "special": [5], "nullable": True, "dtype": "Int8"},
            {"min": -9, "max": 1, "step": 2, "dtype": "int8"},
        ),
        (
            partial(Float, type="float"),
            {"min": 0, "max": 7, "decimals": 3, "special": [0.5]},
            {"min": 0, "max": 1, "bins": 4, "nullable": True},
        ),
        (LISTED, {"values": ["a"], "nullable": True}, {"values": {"pattern": "zip{1..9}"}}),
        (LISTED, {"values": [1, 2]}, {"values": [7]}),
        (
            partial(TextKey, type="text"),
            {"pattern": "P{0..9}"},
            {"pattern": "Q{0..99}", "nullable": True},
        ),
    ],
)
def test_an_outline_knows_nothing_of_the_domain(kind, one, other):
    assert attribute_outline(kind(**one)) == attribute_outline(kind(**other))


def test_an_outline_keeps_what_was_confirmed():
    kinds = {str(attribute_outline(LISTED(values=values))) for values in ([1, 2], [1.5], ["a"])}
    assert len(kinds) == 3
    assert attribute_outline(Integer(type="integer", min=0, max=1, dtype="Int8")).dtype == "int8"


def test_an_outline_says_how_cells_are_written():
    moment = {"type": "datetime", "min": "2020-01-01", "max": "2030-01-01", "step": 60}
    written = {"format": "%d/%m/%Y %H:%M", "missing": "NA"}
    known = attribute_outline(Datetime.model_validate(moment | written))
    assert (known.format, known.missing, known.step) == (*written.values(), 60)
    key = attribute_outline(TextKey(type="text", pattern="{7..9}", dtype="int64"))
    assert (key.dtype, key.pattern) == ("int64", "{1..999999999}")
