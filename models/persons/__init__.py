"""Tables whose rows belong to persons, by any method of one table."""
