"""Options of an evaluation."""

from __future__ import annotations

from typing import Literal

Level = Literal["none", "quick", "full"]
Panel = Literal["nine", "twelve"]
