"""What docs/public-api.md promises of names and versions is there."""

import subprocess
from pathlib import Path

import pytest
import yaml

import cloister

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
