"""MLflow's clients, one for each store and process."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Any


@cache
def client_at(where: str) -> Any:
    """The client of the store at that URI, one per process."""
    quiet()
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=where, registry_uri=where)


def quiet() -> None:
    """Call before the first import: no telemetry, no progress bars for two files, no migration log of new stores."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    registry = ("mlflow.tracking._model_registry.client", "mlflow.store.model_registry.abstract_store")
    for name in ("alembic", *registry, "mlflow.pyfunc"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it also logs a traceback of what it raises
