"""The steps of a release as thin Prefect tasks: load, call one function, save, record."""
