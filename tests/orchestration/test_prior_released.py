"""A release that uses the noisy numbers of an earlier one, by the commands that a user has."""

import json
from pathlib import Path

import pytest
import yaml

import cloister
from cloister.errors import InputError
from cloister.flows.cli.app import run
from cloister.tasks.ledger.access import releases

pytestmark = pytest.mark.usefixtures("prefect_server", "brief_training")


def release(place, capsys, *words):
    """Release the clubs at epsilon 1/2; the exit code, and the certificate or what was said."""
    asked = ["release", str(place.spec), "--method", "mixture", "--epsilon", "1/2", "--json"]
    asked += ["--evaluate", "none", *words]
    capsys.readouterr()
    code = run(asked)
    said = capsys.readouterr()
    if code:
        return code, said.err
    public = Path(json.loads(said.out)["files"]["public"])
    return code, yaml.safe_load((public / "certificate.yaml").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_second_release_uses_the_numbers_of_the_first(place, capsys):
    code, first = release(place, capsys, "--prior", "latest")
    assert code == 0, first
    assert "reused" not in first
    name = first["subject"]["id"]

    refusals = {
        ("--prior", "r-0000000000"): "no release",
        ("--prior", "first"): "latest",
        ("--prior", name, "--method", "independent"): "does not use",
    }
    for words, said in refusals.items():
        code, error = release(place, capsys, *words)
        assert code == 2 and said in error
    with pytest.raises(InputError, match="no release"):
        cloister.release(place.spec, method="mixture", epsilon="1/2", prior="r-0000000000")
    place.edit("max: 80", "max: 81")
    code, error = release(place, capsys, "--prior", name)
    assert code == 2 and "columns" in error
    place.edit("max: 81", "max: 80")
    assert len(releases(place.home, None)) == 1

    code, second = release(place, capsys, "--prior", "latest")
    assert code == 0, second
    charge = {"epsilon": "0.5", "delta": "1e-6", "in_period": True}
    assert second["reused"] == [{"release": name} | charge]
    assert second["guarantee"]["epsilon"] == "0.5"
    assert any(name in sentence for sentence in second["guarantee"]["meaning"])
    odds = [certificate["guarantee"]["odds"][2] for certificate in (first, second)]
    assert odds[0]["release"] < odds[1]["release"] == odds[1]["period"]
    assert run(["verify"]) == 0
