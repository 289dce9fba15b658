"""Files that cells come from."""
