"""Figures of a table from the released numbers of a model, each with its interval."""
