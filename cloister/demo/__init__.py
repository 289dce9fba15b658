"""A fictional civic registry to try Cloister on."""
