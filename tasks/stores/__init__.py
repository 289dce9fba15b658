"""MLflow, DVC and Prefect: the only modules that use them, each with a prefix."""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before MLflow is first imported
