"""Drafts of databases, from their schema alone."""
