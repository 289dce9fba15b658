"""What a reviewer is shown: all releases, and one beside the one before."""

import shutil
from itertools import count

import pandas as pd
import pytest

from cloister.flows.cli.app import run
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import releases


@pytest.fixture(scope="module")
def reviewed(released, tmp_path_factory):
    """A home with a release of the clubs and a later, measured one of a spec that was edited."""
    folder = tmp_path_factory.mktemp("reviewed")
    home = shutil.copytree(released.place.home.folder, folder / "home")
    spec, text = folder / "clubs.yaml", released.place.spec.read_text()
    text = text.replace("max: 80, bins: 16", "max: 90, bins: 18")
    spec.write_text(text.replace('"t.age < 20 and t.income > 0"', '"t.age < 20 and t.income > 1"'))
    words = ["--method", "independent", "--delta", "0", "--rows", "300", "--evaluate", "quick"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOISTER_HOME", str(home))
        assert run(["release", str(spec), *words]) == 0
        return home, [each.id for each in releases(Home.current(), None)]


@pytest.fixture
def two(reviewed, tmp_path, monkeypatch):
    """The releases, in a copy of that home."""
    home, ids = reviewed
    monkeypatch.setenv("CLOISTER_HOME", str(shutil.copytree(home, tmp_path / "home")))
    return ids


def test_all_releases_are_listed_those_that_wait_first(two, cloister):
    first, second = two
    assert [one["release"] for one in cloister("review", "list")] == [second, first]
    cloister("review", "reject", second, "--reason", "the spec is a draft")
    assert [one["release"] for one in cloister("review", "list")] == [first]
    listed = cloister("review", "list", "--all")
    states = [(one["release"], one["state"]) for one in listed]
    assert states == [(first, "candidate"), (second, "rejected")]


def test_a_release_is_shown_beside_the_one_before_without_measures_of_a_decided_one(
    two, cloister, capsys
):
    first, second = two
    shown = cloister("review", "show", second)
    assert (shown["release"]["release"], shown["against"]["release"]) == (second, first)
    assert shown["release"]["charged"] == {"epsilon": "1", "delta": "0"}
    steps = [step["state"] for step in shown["release"]["steps"]]
    assert steps == ["reserved", "spent", "candidate"]
    rule = {"name": "region-capital", "hard": True, "violations": 0, "percent": 0.0}
    assert shown["release"]["violations"][0] == rule
    assert shown["release"]["internal"].keys() == shown["against"]["internal"].keys()
    changes = {change["what"]: (change["before"], change["now"]) for change in shown["changes"]}
    parts = {"digest of the spec", "attribute age", "constraint young"}
    assert changes.keys() == parts | {"method", "rows", "delta"}
    assert changes["rows"] == ("2,000", "300")
    assert "80" in changes["attribute age"][0] and "90" in changes["attribute age"][1]
    capsys.readouterr()
    assert run(["review", "show", first]) == 0
    said = capsys.readouterr().out
    assert "internal" in said and second not in said  # nothing came before the first
    cloister("review", "approve", first, "--reason", "read it")
    shown = cloister("review", "show", second, "--against", first)
    assert shown["against"]["internal"] is None and shown["release"]["internal"]


def test_releases_of_two_accounts_do_not_compare(released, own, cloister, capsys):
    spec, data = own / "others.yaml", own / "others.csv"
    data.write_text("".join(released.place.data.read_text().splitlines(keepends=True)[:-1]))
    text = released.place.spec.read_text().replace(str(released.place.data), str(data))
    spec.write_text(text.replace("name: clubs", "name: others"))
    words = ["--method", "independent", "--delta", "0", "--rows", "300", "--evaluate", "none"]
    other = cloister("release", spec, *words)["release"]
    assert run(["review", "show", other, "--against", released.id]) == 2
    assert "of account clubs" in capsys.readouterr().err
    assert cloister("review", "show", other)["against"] is None


def test_a_change_of_the_data_is_told_from_noise(place, prefect_server, cloister, monkeypatch):
    seeds = count(1)  # other noise in each release, and the same in each run of the test
    for name in ("tasks.data.sources", "privacy.mechanisms.randomness"):
        monkeypatch.setattr(
            f"cloister.{name}.noise_source", lambda: NoiseSource.insecure(next(seeds))
        )
    words = [
        "--method",
        "independent",
        "--delta",
        "0",
        "--rows",
        "200",
        "--evaluate",
        "none",
        "--epsilon",
        "2",
    ]
    first = cloister("release", place.spec, *words)["release"]
    rows = pd.read_csv(place.data)
    rows["member"] = rows.index % 10 > 0  # nearly everybody is one now, and nothing else changed
    rows.to_csv(place.data, index=False)
    second = cloister("release", place.spec, *words)["release"]
    drifts = cloister("review", "show", second, "--against", first)["drifts"]
    assert {drift["attribute"] for drift in drifts if drift["signal"]} == {"member"}
    assert drifts[0]["least"] <= drifts[0]["now"] - drifts[0]["before"] <= drifts[0]["most"]
    assert run(["review", "show", second]) == 0
