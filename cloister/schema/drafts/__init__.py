"""Drafted specs, and what in one no person has confirmed yet."""
