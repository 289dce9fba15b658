"""What only reproduces Kamino's paper, and is not used by the default method."""
