"""Queries that count rows."""
