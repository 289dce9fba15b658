"""The parts of a spec: constraints, exact numbers, releases."""
