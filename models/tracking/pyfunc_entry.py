"""Entry script of a released model: MLflow copies this file into the model folder and runs it there.

It must run where Baton is not installed, so it imports nothing from Baton. The loader of artifacts with which the
release was tested is in the model's own `artifacts/code`. It is loaded as a package with a name derived from its
content. A name such as `agent` would give every version loaded in one process the code of the first.
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
import numpy as np
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


class ReleasedModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc,name-defined,unused-ignore]
    """Decides whether to submit the successor now (a policy), or predicts how long a job would wait (queue time)."""

    def load_context(self, context: Any) -> None:
        """Load the model with the code it was released with."""
        package = load_package(Path(context.artifacts["code"])).__name__
        self.is_policy = "policy" in context.artifacts
        if self.is_policy:
            loader = importlib.import_module(f"{package}.artifact").Artifact
        else:
            loader = importlib.import_module(f"{package}.distribution").Distribution
        self.model = loader.load(Path(context.artifacts["policy" if self.is_policy else "queue-time"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return one row per row of `model_input`, which has one column per feature, by name, in any order.

        A policy returns submit (bool) and score (submit if >= 0, or if the predecessor has ended); params: `setting`, a
        value of its knob. A queue-time model returns a column per level, `q0.025` to `q0.975` (s), and `p_under_600s`;
        it also takes `partition`, if it is known.
        """
        manifest = self.model.manifest
        observed = model_input[manifest["features"]].to_numpy(dtype=np.float32)
        if self.is_policy:
            setting = (params or {}).get("setting")
            columns = {"submit": self.model.decide(observed, setting), "score": self.model.score(observed, setting)}
            return pd.DataFrame(columns, index=model_input.index)
        names = model_input["partition"].fillna("").astype(str).tolist() if "partition" in model_input else None
        forecast = self.model.forecast(observed, names)
        levels = [f"q{level:g}" for level in manifest["levels"]]
        quantiles = pd.DataFrame(forecast.quantiles_s, columns=levels, index=model_input.index)
        return quantiles.assign(p_under_600s=forecast.p_under_600s)


mlflow.models.set_model(ReleasedModel())
