"""The wheel: one import name, beside whatever packages a user has."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cloister.tasks.home.process import PACKAGE, sources

ROOT = Path(__file__).parents[2]
THEIRS = ("models.py", "tasks/__init__.py", "flows/__init__.py", "benchmarks/__init__.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A folder that holds the files of the wheel, made from the files that Git knows."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    git = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, check=True, capture_output=True, text=True).stdout
    needed = (path for path in listed.split("\0") if not path.startswith(("tests/", "docs/")))
    kept = [path for path in needed if path and os.path.lexists(ROOT / path)]
    tar = ["tar", "-C", str(ROOT), "--null", "-cf", "-", "-T", "-"]
    packed = subprocess.run(tar, input="\0".join(kept).encode(), check=True, capture_output=True)
    checkout.mkdir()
    subprocess.run(["tar", "-xf", "-"], cwd=checkout, input=packed.stdout, check=True)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(checkout)], check=True)
    (made,) = folder.glob("*.whl")
    zipfile.ZipFile(made).extractall(folder / "installed")
    return folder / "installed"


LISTING = """
import cloister.tasks.home.process as version
print(*[path.relative_to(version.PACKAGE).as_posix() for path in version.sources()])
"""


def test_one_name_is_installed(wheel):
    names = {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"cloister"}
    assert not (wheel / "cloister" / "benchmarks").exists()


def test_the_digest_of_the_code_covers_the_same_files_in_a_checkout_and_a_wheel(wheel):
    checkout = [path.relative_to(PACKAGE).as_posix() for path in sources()]
    assert {name.split("/")[0] for name in checkout} >= {"models", "tasks", "privacy", "errors.py"}
    assert not any(name.startswith(("flows/", "benchmarks/")) for name in checkout)
    assert run(wheel, wheel.parent, LISTING).split() == checkout


def run(wheel: Path, folder: Path, program: str) -> str:
    """What a program says in a folder, with the wheel installed."""
    settings = {"PYTHONPATH": f"{folder}:{wheel}", "CLOISTER_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


PROGRAM = """
import cloister, models, tasks, flows, benchmarks
assert cloister.__file__.startswith(WHEEL), cloister.__file__
assert [each.theirs for each in (models, tasks, flows, benchmarks)] == [True] * 4
cloister.plan("clubs.yaml", method="mixture")
released = cloister.release("clubs.yaml", method="independent", delta=0, evaluate="none", rows=50)
cloister.approve(released.id, "read", by="A. Officer")
print(len(cloister.load(released.id).sample(20)))
"""


@pytest.mark.slow
def test_a_release_is_planned_made_and_loaded_beside_packages_of_a_user(wheel, place):
    for name in THEIRS:
        path = place.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("theirs = True\n", encoding="utf-8")
    assert run(wheel, place.folder, PROGRAM.replace("WHEEL", repr(str(wheel)))) == "20\n"
