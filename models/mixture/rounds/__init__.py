"""The rounds of a fit: how many, what they may measure, and how they choose."""
