"""Rows drawn one after the other, against the violations with all rows before."""
