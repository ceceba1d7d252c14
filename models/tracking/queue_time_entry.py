"""Entry script of a released queue-time model: MLflow copies this file into the model folder and runs it there.

It must run where Baton is not installed, so it imports nothing from Baton. The loader with which the release was tested
is in the model's own `artifacts/code`. It is loaded as a package with a name derived from its content, so that two
versions loaded in one process each run their own code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mlflow
import pandas as pd


def load_package(folder: Path) -> ModuleType:
    """Load the package in that folder under a name of its own, shared only by folders with the same content."""
    content = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    name = f"baton_release_{hashlib.sha256(content).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} is not a Python package")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


class QueueTime(mlflow.pyfunc.PythonModel):  # type: ignore[misc,name-defined,unused-ignore]
    """Predicts how long each job would wait."""

    def load_context(self, context: Any) -> None:
        """Load the distribution with the code it was released with."""
        package = load_package(Path(context.artifacts["code"]))
        loader = importlib.import_module(f"{package.__name__}.distribution")
        self.model = loader.Distribution.load(Path(context.artifacts["queue-time"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return one row per job: a column per level, `q0.025` to `q0.975` (s), and `p_under_600s`.

        model_input: one column per feature, by name, in any order, and `partition` if it is known.
        """
        manifest = self.model.manifest
        names = model_input["partition"].fillna("").astype(str).tolist() if "partition" in model_input else None
        forecast = self.model.forecast(model_input[manifest["features"]].to_numpy(dtype="float32"), names)
        columns = [f"q{level:g}" for level in manifest["levels"]]
        quantiles = pd.DataFrame(forecast.quantiles_s, columns=columns, index=model_input.index)
        return quantiles.assign(p_under_600s=forecast.p_under_600s)


mlflow.models.set_model(QueueTime())
