"""The steps of a release and of a measurement, and whether what they left is unchanged."""
