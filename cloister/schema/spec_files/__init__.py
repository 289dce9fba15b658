"""Spec files: reading with line marks, checks of the whole, problems as sentences, and writing."""
