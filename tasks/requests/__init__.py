"""Release requests: as they are made, resolved, planned, and repeated."""
