"""Quality of a synthetic table: marginals, queries, violations, learning, detection, attacks.

Every figure here is computed from real rows without noise. None is private: all are for internal
use only.
"""

from __future__ import annotations

from typing import Literal

Level = Literal["none", "quick", "full"]
Panel = Literal["nine", "twelve"]
