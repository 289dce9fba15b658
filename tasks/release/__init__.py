"""The steps of a release, one file each."""
