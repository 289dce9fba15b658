"""The version of the package, of which the rest of it may know."""

__version__ = "0.2.0"
