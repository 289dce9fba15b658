"""Rows drawn from an approved release by the command line, and its answers."""

import json
import shutil

import pandas as pd
import pytest
from small_disks import small_disk

from cloister.flows import sampling
from cloister.flows.cli.app import run
from cloister.models.sampling import drawing
from cloister.tasks.data import parts, tables


@pytest.fixture(scope="module")
def copied(approved, tmp_path_factory):
    """A copy of the home, which these tests only read."""
    folder = tmp_path_factory.mktemp("copied") / "home"
    return shutil.copytree(approved.place.home.folder, folder)


@pytest.fixture
def own(copied, approved, tmp_path, monkeypatch):
    """A folder with what was handed on."""
    monkeypatch.setenv("CLOISTER_HOME", str(copied))
    shutil.copytree(approved.folder / "public", tmp_path / "out")
    return tmp_path


@pytest.fixture
def drawn(approved, own) -> str:
    """The approved release."""
    return approved.id


def test_rows_are_drawn_under_conditions(drawn, own, cloister):
    out = own / "conditioned.csv"
    where = ["--where", "home region=north", "--where", "income="]
    cloister("sample", drawn, "--rows", "200", "--out", out, *where)
    rows = pd.read_csv(out)
    assert len(rows) == 200
    assert set(rows["home region"]) == {"north"}
    assert rows["income"].isna().all()
    assert rows["capital"].nunique() == 1


def test_a_release_is_named_by_its_folder_or_a_file(drawn, own, cloister):
    files = (own / "out", own / "out" / "schema.py")
    asked = [cloister("answer", what, "count()") for what in (drawn, *files)]
    assert asked[0]["release"] == drawn
    assert asked[1:] == [asked[0]] * 2
    pages = [cloister("report", what, "--for", "analysts")["page"] for what in files]
    assert pages == [str(own / "out" / "report.html")] * 2
    assert run(["answer", str(own), "count()"]) != 0


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (["north"], "COLUMN=VALUE"),
        (["nowhere=1"], "'nowhere'"),
        (["age=17"], "'age' is not in its declared domain"),
        (["age=20,5"], "'age' is no whole number"),
        (["age="], "'age' is never missing"),
        (["age=20", "age=30"], "two conditions"),
    ],
)
def test_conditions_that_cannot_be_met_are_refused(drawn, own, capsys, where, said):
    options = [part for text in where for part in ("--where", text)]
    assert run(["sample", drawn, "--rows", "5", "--out", str(own / "none.csv"), *options]) != 0
    assert said in capsys.readouterr().err
    assert not (own / "none.csv").exists()


def test_an_interrupted_draw_goes_on(drawn, own, cloister, monkeypatch):
    monkeypatch.setattr(drawing, "CHUNK_ROWS", 100)
    monkeypatch.setattr(tables, "CELLS_OF_GROUP", 1)
    stored = []

    def stop_at_the_third(self, number, rows, store=parts._Parts._store):
        if len(stored) == 2:
            raise KeyboardInterrupt
        stored.append(number)
        return store(self, number, rows)

    def noted(self, number, rows, store=parts._Parts._store):
        stored.append(number)
        return store(self, number, rows)

    out = own / "long.parquet"
    draw = ["sample", drawn, "--rows", "450", "--out", str(out)]
    needed = []
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "require_room", lambda folder, size: needed.append(size))
        patch.setattr(parts._Parts, "_store", stop_at_the_third)
        assert run(draw) != 0
        assert not out.exists()
        (note,) = own.glob(".long.parquet*/request.json")
        seed = json.loads(note.read_text())["seed"]
        left = sum(path.stat().st_size for path in note.parent.iterdir())
        patch.setattr(parts._Parts, "_store", noted)
        cloister(*draw)
    assert stored == [0, 1, 2, 3, 4]
    assert needed == [needed[0], needed[0] - left]
    assert len(pd.read_parquet(out)) == 450
    cloister(*draw[:-1], str(own / "whole.parquet"), "--seed", str(seed))
    assert out.read_bytes() == (own / "whole.parquet").read_bytes()
    assert not list(own.glob(".long*"))


def test_draws_to_one_file_at_once_are_refused_but_one(drawn, own, monkeypatch, capsys):
    out = own / "busy.parquet"
    draw = ["sample", drawn, "--rows", "50", "--out", str(out)]
    refused = []

    def written(path, groups, write=tables.write_rows):
        refused.append(run(draw))
        write(path, groups)

    with monkeypatch.context() as patch:
        patch.setattr(tables, "write_rows", written)
        assert run(draw) == 0
    assert refused == [2]
    assert "another command draws to" in capsys.readouterr().err
    assert len(pd.read_parquet(out)) == 50
    assert not list(own.glob(".busy*"))


def test_a_disk_without_room_for_the_rows_is_said_before_any_is_drawn(drawn, own, capsys):
    with small_disk(own / "disk", kilobytes=1024) as disk:
        draw = ["sample", drawn, "--rows", "1000000", "--out", str(disk / "rows.parquet")]
        assert run(draw) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "the disk has 1 MiB free and up to" in said and "request fewer rows" in said
        assert list(disk.iterdir()) == []


def test_binary_columns_are_refused_of_a_model_without_them(drawn, own, capsys):
    out = own / "ones.parquet"
    assert run(["sample", drawn, "--rows", "5", "--binary", "--out", str(out)]) == 2
    assert "release with --method copula or copula-paper" in capsys.readouterr().err
    assert not out.exists()


def test_a_question_is_answered_at_no_cost(drawn, own, cloister, capsys):
    said = cloister("answer", drawn, "count() by `home region`")
    assert [row["home region"] for row in said["estimates"]] == ["north", "south", "east"]
    assert all(0 < row["low"] < row["estimate"] < row["high"] for row in said["estimates"])
    assert said["epsilon"] == 0
    assert run(["answer", drawn, "median(income)", "--of", "table"]) == 0
    assert "missing and special values of income are left out" in capsys.readouterr().out
    assert run(["answer", drawn, "mean(wages)"]) == 2
    assert "no column 'wages'" in capsys.readouterr().err


def test_an_error_that_no_counts_bound_is_refused_in_place_of_an_interval(drawn, own, capsys):
    assert run(["answer", drawn, "share(member = 'True') by `home region`"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the release counted no table of home region x member together" in said
    assert "by `cloister sample`" in said
