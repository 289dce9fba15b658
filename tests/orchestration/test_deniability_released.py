"""Records made from seeds by the command: refused, released, certified, drawn from, verified."""

import json

import pytest
import yaml

from cloister.flows.cli.app import run
from cloister.tasks.release.verify import verify_records

DENIABLE = (
    "release: {method: deniability, epsilon: 1, delta: 1e-6, guarantee: plausible-deniability}"
)


def test_a_release_under_plausible_deniability_says_so_everywhere(place, prefect_server, capsys):
    place.edit("release: {method: kamino, epsilon: 1, delta: 1e-6}", DENIABLE)
    assert run(["plan", str(place.spec), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["records"]["guarantee"] == "plausible-deniability"
    assert made["records"]["all_candidates"]["epsilon"] > 1_000
    assert made["accounted_epsilon"] <= 1
    assert run(["release", str(place.spec), "--evaluate", "none", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["epsilon"], said["budget_left"]) == ("1", "3")
    assert verify_records(place.home, None)[1] == []
    folder = place.home.release(said["release"]) / "public"
    text = (folder / "certificate.yaml").read_text(encoding="utf-8")
    assert "this is NOT differential privacy of the table" in " ".join(text.split())
    assert "NOT differentially private" in (folder / "certificate.html").read_text(encoding="utf-8")
    assert run(["budget", "show", "--json"]) == 0
    (budget,) = json.loads(capsys.readouterr().out)
    assert budget["together"] == "unbounded: 1 not differentially private"
    assert run(["ledger", "show", said["release"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == made["records"]
    assert run(["review", "approve", said["release"], "--reason", "fine"]) == 0
    capsys.readouterr()
    out = place.folder / "more.csv"
    many = ["sample", said["release"], "--rows", "1000000", "--out", str(out)]
    assert run(many) == 2
    assert "gives at most" in capsys.readouterr().err
    some = ["sample", said["release"], "--rows", "20", "--out", str(out)]
    assert run([*some, "--where", "home region=north"]) == 0
    assert {line.split(",")[0] for line in out.read_text().splitlines()[1:]} == {"north"}


def test_what_is_not_declared_or_does_not_fit_leaves_with_two_and_charges_nothing(place, capsys):
    charged = ["plan", str(place.spec), "--method", "deniability"]
    assert run(charged) == 2
    assert "at most 4 records made from seeds fit" in " ".join(capsys.readouterr().err.split())
    assert run([*charged, "--rows", "4"]) == 0
    place.edit("release: {method: kamino, epsilon: 1, delta: 1e-6}", DENIABLE)
    assert run(["release", str(place.spec), "--method", "mixture"]) == 2
    assert "use --method deniability" in " ".join(capsys.readouterr().err.split())
    assert run(["release", str(place.spec), "--method", "auto"]) == 2


@pytest.mark.slow
def test_a_benchmark_shows_what_the_network_tells_of_each_attribute(place, prefect_server, capsys):
    page = place.folder / "page.md"
    page.write_text("<!-- generated: told -->\n<!-- end: told -->\n")
    told = {"name": "told", "title": "Told", "datasets": ["clubs"], "epsilons": [3]}
    told |= {"methods": ["bayes", "independent"], "tables": ["network"]}
    clubs = {"spec": str(place.spec), "data": str(place.data), "public": "made up"}
    content = {"name": "told", "delta": "1e-6", "evaluate": "none", "datasets": {"clubs": clubs}}
    content["experiments"] = [told]
    path = place.folder / "told.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert run(["benchmark", str(path), "--markdown", str(page), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    network, marginals = (found["evaluation"] for found in said["results"])
    assert "network" not in marginals
    for error in network["network"]:
        assert all(0 <= error[name] <= 1 for name in ("network", "marginals", "forest", "guess"))
    text = page.read_text()
    assert "| clubs | home region | bayes, ε 3 |" in text
    assert "independent" not in text.split("told wrongly")[1].split("![")[0]
    assert (place.folder / "page" / "told-told-network-clubs.png").stat().st_size > 10_000
