"""Measures of several synthetic tables against the real ones."""
