"""The steps of a release as thin Prefect tasks: load what a reference names, call one function, save, record."""
