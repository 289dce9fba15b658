"""What docs/public-api.md promises of names and versions is there."""

import inspect
import subprocess
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml

import cloister
from cloister.flows.cli.app import app
from cloister.flows.cli.options import DELIVERY
from cloister.tasks.requests.release_request import ReleaseRequest

ROOT = Path(__file__).parents[2]


def test_every_name_of_the_package_is_described_on_its_page():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names = [name for name in cloister.__all__ if name != "__version__"]
    assert names and all(f"cloister.{name}(" in page for name in names)
    assert sorted(cloister.__all__) == cloister.__all__ == dir(cloister)


def test_the_version_has_an_entry_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {cloister.__version__}\n" in changelog


@pytest.mark.slow
def test_the_bill_of_materials_lists_every_package_with_its_version(tmp_path):
    subprocess.run(["make", "-C", str(ROOT), "sbom"], check=True, timeout=600)
    listed = yaml.safe_load((ROOT / "sbom.json").read_text(encoding="utf-8"))["components"]
    versions = {part["name"].lower().replace("_", "-"): part["version"] for part in listed}
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    for pin in pins:
        name, version = pin.split("==")
        assert versions.get(name.lower().replace("_", "-"), version).startswith(version)
    assert versions["cloister"] == cloister.__version__


@pytest.mark.parametrize(
    ("command", "left_out"),
    [("release", set()), ("plan", set(DELIVERY)), ("deploy", {"seed_sampling"})],
)
def test_options_of_a_release_are_the_fields_of_a_request(command, left_out):
    group = typer.main.get_command(app)
    options = {option.name: option.help for option in group.commands[command].params}
    for name, field in ReleaseRequest.model_fields.items():
        if name in {"spec", "by", *left_out}:
            continue
        assert options[name] == field.description


@pytest.mark.parametrize(("function", "left_out"), [("release", set()), ("plan", set(DELIVERY))])
def test_arguments_in_python_are_the_fields_of_a_request(function, left_out):
    shown = getattr(cloister, function)
    fields = {name for name in ReleaseRequest.model_fields if name != "by"} - left_out
    assert set(inspect.signature(shown).parameters) == fields
    with pytest.raises(TypeError, match="epsilom"):
        shown("clinic.yaml", epsilom=1)
    described = {name: ReleaseRequest.model_fields[name].description for name in fields}
    del described["spec"], described[{"release": "data", "plan": "method"}[function]]
    assert all(f"{name}: {words}" in shown.__doc__ for name, words in described.items())


@pytest.mark.parametrize("amount", [1, 0.5, Decimal("0.1"), Fraction(1, 3), np.int64(2), "1/3"])
def test_an_amount_is_read_as_it_is_written(amount):
    assert ReleaseRequest(spec="clinic.yaml", epsilon=amount).epsilon == str(amount)
