"""Method relational-paper: the algorithm as printed, over all pairs of rows."""
