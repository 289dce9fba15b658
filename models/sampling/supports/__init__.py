"""Supports of hard constraints: which joint values rows may have."""
