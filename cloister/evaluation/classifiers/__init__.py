"""What classifiers learn from rows, and whether they tell real from synthetic ones."""
