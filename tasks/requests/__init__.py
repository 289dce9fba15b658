"""What a release is asked to do: the request, as it is resolved, its plan, and recurring ones."""
