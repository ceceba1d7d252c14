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


class ProvisioningPolicy(mlflow.pyfunc.PythonModel):  # type: ignore[misc,name-defined,unused-ignore]
    """Decides for each observation whether to submit the successor now."""

    def load_context(self, context: Any) -> None:
        """Load the artifact with the code it was released with."""
        package = load_package(Path(context.artifacts["code"]))
        loader = importlib.import_module(f"{package.__name__}.artifact")
        self.artifact = loader.Artifact.load(Path(context.artifacts["policy"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return one row per observation: submit (bool) and score (submit if >= 0, or if the predecessor has ended).

        model_input: one column per feature, by name, in any order. params: `setting`, a value of the policy's knob.
        """
        features = self.artifact.manifest["features"]
        observations = model_input[features].to_numpy(dtype=np.float32)
        setting = (params or {}).get("setting")
        return pd.DataFrame(
            {
                "submit": self.artifact.decide(observations, setting),
                "score": self.artifact.score(observations, setting),
            },
            index=model_input.index,
        )


mlflow.models.set_model(ProvisioningPolicy())
