"""mostlyai-engine: TabularARGN, an autoregressive network trained by DP-SGD.

Its own protection of rare values, which would learn domains from the rows under a part of epsilon,
is switched off; the categories that occur are read from the rows without noise, as it has no way
to be told them. Training ends where its accountant reaches epsilon. Option ``noise_multiplier``:
1.5 by default, the library's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from mostlyai import engine


def synthesize(codes: np.ndarray, sizes: Sequence[int], job: Mapping[str, Any]) -> np.ndarray:
    """Synthetic codes (job["rows"], k) like the real ``codes`` (n, k).

    Column j has the public domain 0, ..., sizes[j] - 1.
    """
    torch.set_num_threads(1)
    engine.set_random_state(job["seed"])
    names = [f"a{column}" for column in range(len(sizes))]
    frame = pd.DataFrame(codes, columns=names).astype(str)
    privacy = {
        "max_epsilon": job["epsilon"],
        "delta": job["delta"],
        "noise_multiplier": job["options"].get("noise_multiplier", 1.5),
    }
    with tempfile.TemporaryDirectory() as folder:
        kinds = dict.fromkeys(names, "TABULAR_CATEGORICAL")
        engine.split(tgt_data=frame, tgt_encoding_types=kinds, workspace_dir=folder)
        engine.analyze(value_protection=False, workspace_dir=folder)
        engine.encode(workspace_dir=folder)
        engine.train(differential_privacy=privacy, device="cpu", workspace_dir=folder)
        engine.generate(sample_size=job["rows"], device="cpu", workspace_dir=folder)
        drawn = pd.read_parquet(f"{folder}/SyntheticData")
    return drawn[names].astype(int).to_numpy()
