"""A release of a table that lies in several files, as the part files of a folder."""

import pandas as pd
import yaml
from quick_release import quick_release

from cloister.flows.cli.app import run
from cloister.tasks.ledger.access import open_ledger


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
