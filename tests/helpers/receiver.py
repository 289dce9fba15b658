"""A receiver of a release, who has pandas and pandera and no Cloister."""

import subprocess
import sys
import sysconfig
from pathlib import Path

RECEIVER = """
import sys
sys.path.append(sys.argv[1])
import runpy
from pathlib import Path
try:
    import cloister
except ImportError:
    pass
else:
    sys.exit("cloister can be imported")
import pandas as pd, pandera.pandas as pa
for folder in map(Path, sys.argv[2:]):
    tables = runpy.run_path(str(folder / "schema.py"))["validate"]()
    for name, table in tables.items():
        text = folder / ("schema.yaml" if len(tables) == 1 else f"{name}.schema.yaml")
        pa.DataFrameSchema.from_yaml(text).validate(table)
        print(name, len(table))
"""
"""What a receiver does, in an interpreter that knows pandas and pandera alone."""


def receive(*folders: Path) -> subprocess.CompletedProcess[str]:
    """Check folders as a receiver does, without site packages' links to this project."""
    words = [sys.executable, "-I", "-S", "-B", "-c", RECEIVER, sysconfig.get_path("purelib")]
    return subprocess.run([*words, *map(str, folders)], capture_output=True, text=True, check=False)
