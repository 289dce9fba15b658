"""A release of a table that lies in several files, as a folder here or in object storage."""

import pandas as pd
import pytest
import yaml
from object_storage import bucket_of_tables
from quick_release import quick_release

from cloister.flows.cli.app import run
from cloister.tasks.ledger.access import open_ledger


@pytest.mark.slow
def test_a_folder_of_parquet_files_is_released_as_one_table(prefect_server, place, capsys):
    frame, folder = pd.read_csv(place.data), place.folder / "clubs"
    folder.mkdir()
    for number, begin in enumerate(range(0, len(frame), 900)):
        part = frame[begin : begin + 900].astype({"income": "Int64"})
        part.to_parquet(folder / f"part-{number}.parquet", row_group_size=400)
    place.edit(str(place.data), str(folder))
    assert run(quick_release(place, "--json")) == 0
    ledger = open_ledger(place.home)
    (release,) = ledger.releases("clubs")
    assert ledger.books().accounts["clubs"].places == (f"{folder}/*.parquet",)
    pointers = place.home.versions / "releases" / release.id / "input.dvc"
    tracked = yaml.safe_load(pointers.read_text())
    assert [dep["path"].rsplit("/")[-1] for dep in tracked["deps"]] == [
        f"part-{number}.parquet" for number in range(3)
    ]
    place.edit("name: clubs", "name: others")
    place.edit(str(folder), f"{folder}/part-1.parquet")
    assert run(quick_release(place)) == 2
    assert "is data of account 'clubs'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_of_a_bucket_is_released_as_one_table(prefect_server, place, capsys):
    lines = place.data.read_text().splitlines(keepends=True)
    with bucket_of_tables() as bucket:
        for number in range(2):
            rows = lines[0] + "".join(lines[1 + number * 1_000 :][:1_000])
            bucket.put_object(Key=f"clubs/{number}.csv", Body=rows.encode())
        place.edit(str(place.data), "s3://tables/clubs/*.csv")
        assert run(quick_release(place, "--json")) == 0
    ledger = open_ledger(place.home)
    (release,) = ledger.releases("clubs")
    assert ledger.books().accounts["clubs"].places == ("s3://tables/clubs/*.csv",)
    assert not (place.home.versions / "releases" / release.id / "input.dvc").exists()
    capsys.readouterr()
    other = ["dataset", "add", "others", "--place", "s3://tables/clubs/1.csv", "--reason", "new"]
    assert run(other) == 2
    assert "is data of account 'clubs'" in capsys.readouterr().err
