"""MLflow: its store, its runs, and the versions of the registered model. Nothing else of Baton imports `mlflow`."""
