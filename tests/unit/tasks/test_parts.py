"""Drawing to one file in parts: interrupted or not, the same rows; never half a file."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from declared_table import domain_of
from shipped import shipped

from cloister.constraints import parse_denial
from cloister.constraints.counting import count_violations
from cloister.errors import StorageError
from cloister.models.core.bins import bin_cells
from cloister.models.core.noisy_table import to_shares
from cloister.models.sampling import drawing
from cloister.models.sampling.drawing import Sampler
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.violation_index import PairIndex
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Date, Integer, TextKey
from cloister.schema.partition import declared_cells
from cloister.tasks.data import tables
from cloister.tasks.data.parts import SampleRequest, sample_to

DOMAIN = domain_of(
    id=TextKey(type="text", pattern="R{0001..9999}"),
    **{"a city": Categorical(type="categorical", values=["A", "B", "C"], nullable=True)},
    n=Integer(type="integer", min=0, max=50_000, nullable=True),
    day=Date(type="date", min="2020-01-01", max="2020-12-31"),
)
KEY = parse_denial("t1.n = t2.n and t1.`a city` = t2.`a city`", "key")


class Even:
    def conditional(self, position, context):
        size = SIZES[position]
        return np.full((1, size), 1 / size)


EVEN = {name: declared_cells(DOMAIN[name]) for name in DOMAIN.modelled}
BINS = {
    name: bin_cells(cells, to_shares(np.ones(cells.size), 1_000), 0.0, keep=True)
    for name, cells in EVEN.items()
}
SIZES = [BINS[name].size for name in DOMAIN.modelled]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(drawing, "CHUNK_ROWS", 100)
    monkeypatch.setattr(tables, "CELLS_OF_GROUP", 100 * len(DOMAIN.names))


def sampler(*pair_rules):
    return ConstraintSampler(DOMAIN, DOMAIN.modelled, BINS, Even(), pair_rules=pair_rules)


class Interrupted(Sampler):
    """A sampler that stops after some chunks, and counts those it drew."""

    def __init__(self, whole, after):
        self._whole, self._after, self.drawn = whole, after, 0
        self.domain = whole.domain

    @property
    def remembers(self):
        return self._whole.remembers

    def draw(self, *arguments):
        if self.drawn == self._after:
            raise KeyboardInterrupt
        self.drawn += 1
        return self._whole.draw(*arguments)


REQUEST = SampleRequest("model 1", 730, 5)


def require_same(path, frame):
    """The file holds the frame, as a frame written whole would."""
    whole = path.with_name("whole.parquet")
    frame.to_parquet(whole, index=False)
    assert pq.read_schema(path).equals(pq.read_schema(whole), check_metadata=False)
    pd.testing.assert_frame_equal(pd.read_parquet(path), pd.read_parquet(whole))
    whole.unlink()


@pytest.mark.parametrize("rules", [(), (KEY,)], ids=["independent", "remembering"])
def test_the_file_holds_what_sample_draws(tmp_path, rules):
    path = sample_to(sampler(*rules), REQUEST, tmp_path / "rows.parquet")
    require_same(path, sampler(*rules).sample(730, SamplingSource(5)).frame())
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]


def interrupted(path, *rules, request=REQUEST):
    """A draw to a file that ends after three chunks."""
    with pytest.raises(KeyboardInterrupt):
        sample_to(Interrupted(sampler(*rules), 3), request, path)
    assert not path.exists()
    return path


@pytest.mark.parametrize("rules", [(), (KEY,)], ids=["independent", "remembering"])
def test_an_interrupted_draw_is_resumed_and_ends_the_same(tmp_path, rules):
    path, rest = interrupted(tmp_path / "rows.parquet", *rules), Interrupted(sampler(*rules), 99)
    sample_to(rest, REQUEST, path)
    assert rest.drawn == 5
    table = sampler(*rules).sample(730, SamplingSource(5))
    require_same(path, table.frame())
    assert count_violations(KEY, table) == 0 or not rules


def test_parts_of_another_request_are_not_used_and_a_half_written_one_is_drawn_again(tmp_path):
    other = interrupted(tmp_path / "other.parquet", request=SampleRequest("model 2", 730, 5))
    path = interrupted(tmp_path / "rows.parquet")
    folder = tmp_path / "rows.parquet.parts"
    (folder / "part-000002.arrow").rename(folder / ".part-000002.arrow.unfinished")
    for at, chunks in ((other, 8), (path, 6)):
        rest = Interrupted(sampler(), 99)
        sample_to(rest, REQUEST, at)
        assert rest.drawn == chunks
    require_same(path, sampler().sample(730, SamplingSource(5)).frame())


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_file_is_the_same_for_any_workers_and_after_an_interruption(
    tmp_path, monkeypatch, chunks
):
    monkeypatch.setattr(tables, "CELLS_OF_GROUP", chunks * 100 * len(DOMAIN.names))
    whole = sample_to(sampler(), REQUEST, tmp_path / "whole.parquet")
    alone = sample_to(sampler(), REQUEST, tmp_path / "alone.parquet", mapper=map)
    with pytest.raises(KeyboardInterrupt):
        sample_to(Interrupted(sampler(), 5), REQUEST, tmp_path / "resumed.parquet", mapper=map)
    rest = Interrupted(sampler(), 99)
    resumed = sample_to(rest, REQUEST, tmp_path / "resumed.parquet", mapper=shipped)
    assert rest.drawn == 0  # copies of it drew
    assert whole.read_bytes() == alone.read_bytes() == resumed.read_bytes()
    assert pq.read_metadata(whole).num_row_groups == -(-8 // chunks)


def test_rows_before_are_indexed_once_however_many_chunks_follow(monkeypatch):
    recorded = []
    record = PairIndex.record

    def counting(index, rows, sign=1):
        recorded.append(rows.rows)
        record(index, rows, sign)

    monkeypatch.setattr(PairIndex, "record", counting)
    assert sampler(KEY).sample(730, SamplingSource(5)).rows == 730
    assert sum(recorded) < 730


def test_the_condition_holds_in_the_file_and_a_place_that_cannot_be_written_is_an_error(tmp_path):
    request, path = SampleRequest("model 1", 250, 5, {"a city": "B"}), tmp_path / "rows.parquet"
    drawn = pd.read_parquet(sample_to(sampler(), request, path))
    assert (drawn["a city"] == "B").all() and len(drawn) == 250
    with pytest.raises(StorageError, match="cannot be written"):
        sample_to(sampler(), REQUEST, path / "rows.parquet")
