"""Ordered numbers, of which one is modelled as its difference from the other."""
