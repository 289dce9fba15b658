"""What runs is versioned by its code: another line of it is another version."""

import shutil
import subprocess
import sys

import pytest

from cloister.tasks.home.process import PACKAGE

SHOW = """
from cloister.flows.release import release
from cloister.tasks.release.synthesis import sample_rows
print(sample_rows.version, release.version)
"""


@pytest.mark.parametrize(
    ("changed", "of_steps"),
    [("models/sampling/sampler.py", True), ("tasks/release/synthesis.py", True), ("flows/release.py", False)],
)
def test_steps_and_flows_have_another_version_once_their_code_changed(changed, of_steps, tmp_path):
    """The flows order the steps and decide no answer: their sources are of the flow's version."""
    shutil.copytree(PACKAGE, tmp_path / "cloister")
    before = _versions(tmp_path)
    with (tmp_path / "cloister" / changed).open("a") as source:
        source.write("# another line\n")
    after = _versions(tmp_path)
    assert after[1] != before[1]
    assert (after[0] != before[0]) is of_steps
