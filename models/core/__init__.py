"""What every method is made of: partitions, noisy tables, budget splits."""
