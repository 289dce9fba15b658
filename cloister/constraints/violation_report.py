"""What is said of the violations of a constraint; plans need it without the counting."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ViolationReport:
    """Violations of one constraint: rows or unordered pairs, and their share in percent."""

    name: str
    hard: bool
    violations: int
    percent: float
