"""Tables that refer to each other."""
