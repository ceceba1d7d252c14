"""MLflow's own server, opened at the runs by cost: the application `baton` of `mlflow server --app-name`.

MLflow 3.17 opens its view for language models, with a note on its telemetry, and stores every preference in the
browser. Neither a tag nor a setting of the server changes that. So the page `/` sets those preferences that a browser
has not set yet, before MLflow's page starts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.tracking.clients import client_at
from models.tracking.runs import by_cost_path
from models.tracking.store import EXPERIMENT

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import HTMLResponse

# Entries of MLflow's page in the browser's local storage, by key.
PREFERENCES = {
    "mlflow.workflowType_v1": "machine_learning",
    "mlflow.settings.telemetry.enabled_v1": False,
    "mlflow.telemetry.info.alert.dismissed_v1": True,
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True,  # otherwise its chat takes a third of the first page
}
SCRIPT = """<script>
try {
  for (const [key, value] of Object.entries(%s))
    if (localStorage.getItem(key) === null) localStorage.setItem(key, JSON.stringify(value));
} catch { /* a browser that stores nothing asks again each time */ }
if (!location.hash) history.replaceState(null, "", %s);
</script>"""


def application() -> Any:
    """MLflow's FastAPI application with another page `/`; everything below `/#/` is MLflow's, unchanged."""
    import mlflow.server
    from mlflow.server.fastapi_app import app
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    index = Path(mlflow.server.__file__).parent / mlflow.server.REL_STATIC_DIR / "index.html"
    page = index.read_text(encoding="utf-8")

    def landing(_: Request) -> HTMLResponse:
        return HTMLResponse(page.replace("<head>", f"<head>{_script()}", 1))

    app.router.routes.insert(0, Route("/", landing))
    return app


def _script() -> str:
    """The script that runs before MLflow's; it opens the experiment's runs if the store has the experiment."""
    from mlflow.server.constants import BACKEND_STORE_URI_ENV_VAR

    experiment = client_at(os.environ[BACKEND_STORE_URI_ENV_VAR]).get_experiment_by_name(EXPERIMENT)
    path = "#/experiments" if experiment is None else by_cost_path(str(experiment.experiment_id))
    return SCRIPT % (_literal(PREFERENCES), _literal(path))


def _literal(value: Any) -> str:
    """The value as JavaScript that cannot end the script element."""
    return json.dumps(value).replace("<", "\\u003c")
