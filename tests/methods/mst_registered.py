"""A plugin of pytest, under which the laws of all methods are those of MST as well."""

from cloister.models.registry import METHODS, Deferred

METHODS["mst"] = Deferred("mst", "mst")
