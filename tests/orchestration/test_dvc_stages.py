"""The stages of dvc.yaml in a checkout: what is sent, what is compared, plots without network."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def test_only_the_release_can_be_sent():
    """Neither the table nor what was measured on it; figures are pictures, not Vega's scripts."""
    declared = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    outs = [
        next(iter(out.items())) if isinstance(out, dict) else (out, {})
        for stage in declared["stages"].values()
        for out in stage.get("outs", [])
    ]
    assert [path for path, kept in outs if kept.get("push", True)] == ["data/synthetic/demo"]
    assert dict(outs)["data/raw/demo.csv"] == {"cache": False, "push": False}
    assert all(Path(path).suffix == ".png" for path in declared["plots"])


class Checkout:
    """A clone with the working tree's files, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = self._said("git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard")
        for name in filter(None, files.split("\0")):
            if (ROOT / name).exists() and not name.startswith(("tests/", "docs/")):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        self.run("git", "init", "-q")

    def run(self, *words: str) -> str:
        return self._said(*words, cwd=self.folder)

    def dvc(self, *words: str) -> str:
        return self.run(sys.executable, "-m", "dvc", *words)

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        by = ("-c", "user.name=A. Tester", "-c", "user.email=tester@example.org")
        self.run("git", *by, "commit", "-qm", message)

    def set(self, group: str, **values: Any) -> None:
        """Change numbers of the job."""
        path = self.folder / "params.yaml"
        params = yaml.safe_load(path.read_text(encoding="utf-8"))
        params[group] |= values
        path.write_text(yaml.safe_dump(params), encoding="utf-8")

    def _said(self, *words: str, cwd: Path = ROOT) -> str:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder),
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(self.folder.parent / "site"),
        }
        return subprocess.run(
            words, cwd=cwd, env=environment, capture_output=True, text=True, check=True
        ).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Checkout:
    """Two replays of a small job, the first committed."""
    made = Checkout(tmp_path_factory.mktemp("work") / "checkout")
    made.set("data", rows=1000)
    made.set("release", rows=1000, method="dpview")
    made.dvc("repro", "--quiet")
    made.commit("A replay.")
    made.set("release", rows=900)
    made.dvc("repro", "--quiet")
    return made


@pytest.mark.slow
def test_a_push_sends_the_release_and_no_byte_of_the_data(checkout: Checkout):
    remote = checkout.folder.parent / "fresh"
    checkout.dvc("remote", "add", "fresh", str(remote))
    checkout.dvc("push", "--remote", "fresh")
    sent = {path.read_bytes() for path in remote.rglob("*") if path.is_file()}
    internal = [checkout.folder / "data" / "raw" / "demo.csv"]
    internal += [path for path in (checkout.folder / "artifacts").rglob("*") if path.is_file()]
    assert not sent & {path.read_bytes() for path in internal}
    digests = {hashlib.md5(content, usedforsecurity=False).hexdigest() for content in sent}
    lines = internal[0].read_bytes().splitlines()[1:]
    assert not [line for line in lines if any(line in content for content in sent)]
    released = (checkout.folder / "data" / "synthetic" / "demo").iterdir()
    assert {
        hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for path in released
    } < digests
    cache = (checkout.folder / ".dvc" / "cache").rglob("*")
    assert not [path for path in cache if path.is_file() and lines[0] in path.read_bytes()]


@pytest.mark.slow
def test_metrics_and_parameters_of_two_revisions_are_compared(checkout: Checkout):
    changed = json.loads(checkout.dvc("params", "diff", "--json"))
    assert changed == {"params.yaml": {"release.rows": {"old": 1000, "new": 900, "diff": -100}}}
    (measured,) = json.loads(checkout.dvc("metrics", "diff", "--json")).values()
    assert measured["synthetic_rows"] == {"old": 1000, "new": 900, "diff": -100}
    checkout.commit("Another replay.")
    between = json.loads(checkout.dvc("metrics", "diff", "--json", "HEAD~1", "HEAD"))
    assert list(between.values()) == [measured]


@pytest.mark.slow
def test_plots_are_a_page_that_loads_nothing_from_the_network(checkout: Checkout):
    checkout.dvc("plots", "show")
    page = checkout.folder / "dvc_plots" / "index.html"
    text = page.read_text(encoding="utf-8")
    assert "http" not in text and "<script" not in text
    pictures = re.findall(r'src="([^"]+)"', text)
    assert len(pictures) == 2
    assert all((page.parent / picture).read_bytes()[1:4] == b"PNG" for picture in pictures)
