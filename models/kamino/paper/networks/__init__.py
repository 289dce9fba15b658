"""The sub-models that the paper trains."""
