"""Writing synthetic tables into databases, with their keys."""
