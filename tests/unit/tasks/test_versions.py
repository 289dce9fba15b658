"""What runs is versioned by its code: another line of it is another version."""

import os
import shutil
import subprocess
import sys

from cloister.tasks.home.process import PACKAGE

SHOW = "from cloister.tasks.home.process import *; print(code_version(), flow_version())"


def versions(folder) -> list[str]:
    shown = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout.split()


def test_steps_and_flows_have_another_version_once_their_code_changed(tmp_path):
    """The flows order the steps and decide no answer: their sources are of the flow's version."""
    shutil.copytree(PACKAGE, tmp_path / "cloister")
    step, flow = versions(tmp_path)
    with (tmp_path / "cloister" / "flows" / "release.py").open("a") as source:
        source.write("# another line\n")
    other_order = versions(tmp_path)
    assert other_order[0] == step and other_order[1] != flow
    with (tmp_path / "cloister" / "models" / "registry.py").open("a") as source:
        source.write("# another line\n")
    other_step = versions(tmp_path)
    assert other_step[0] != step and other_step[1] != other_order[1]
