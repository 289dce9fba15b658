"""MLflow, DVC and Prefect: the only modules that know them, one product a prefix."""
