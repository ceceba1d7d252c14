"""MLflow: its store, its runs, and the versions of registered models. No other part of Baton imports `mlflow`."""
