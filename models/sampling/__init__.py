"""Drawing rows from a fitted model under hard constraints and conditions."""
