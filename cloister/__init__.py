"""Cloister: differentially private synthetic tables that keep their integrity constraints."""

from importlib.metadata import version

__version__ = version("cloister")
