"""The door: the only way to sensitive rows, and the journal of every answer that it gave."""
