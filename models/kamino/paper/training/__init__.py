"""The ways in which the paper trains and weighs."""
