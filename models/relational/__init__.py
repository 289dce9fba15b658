"""Tables that refer to each other: any method of one table, and relationships between them."""
