"""Runs a peer's script in the peer's environment: ``python -I run_peer.py SCRIPT FOLDER SECONDS``.

A program of its own that imports standard modules and numpy only. ``FOLDER`` holds ``codes.npy``
(n, k) and ``job.json`` with the sizes of the k public domains. The program writes
``synthetic.npy``, whatever its shape: it is checked elsewhere. After ``SECONDS`` of CPU time the
system ends it.
"""

from __future__ import annotations

import json
import resource
import runpy
import sys
from pathlib import Path

import numpy as np


def drive(script: Path, folder: Path) -> None:
    """Call ``synthesize(codes, sizes, job)`` of a script, with numpy seeded; save its result."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    np.random.seed(job["seed"])  # noqa: NPY002 - what peers draw from
    synthesize = runpy.run_path(str(script))["synthesize"]
    made = synthesize(np.load(folder / "codes.npy"), job["sizes"], job)
    np.save(folder / "synthetic.npy", np.asarray(made), allow_pickle=False)


if __name__ == "__main__":
    limit = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]), limit))
    drive(Path(sys.argv[1]), Path(sys.argv[2]))
