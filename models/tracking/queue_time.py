"""Save a queue-time model as an MLflow pyfunc that does not need Baton: arrays, their loader, and the entry script."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from models.tracking.store import quiet
from models.tracking.versions import MODEL_CARD, copy_package, requirements
from traces.cache.closure import present

if TYPE_CHECKING:
    from agent.distribution import Distribution

ENTRY = "models.tracking.queue_time_entry"
# Copied into every release as modules of one package.
LOADER = ("agent.artifact", "agent.kinds", "agent.trees", "agent.distribution")
SHIPPED = (ENTRY, *LOADER)
PARTITION = "partition"  # the only input that is not a number


def save_model(model: Distribution, folder: Path, card: str) -> None:
    """Write the distribution as a pyfunc, with its loader, its card and pinned requirements.

    Signature: one double column per feature and the name of the partition. Returns a double column per level of LEVELS,
    such as `q0.5` (s), and `p_under_600s`.
    """
    quiet()
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    manifest = model.manifest
    names = [f"q{level:g}" for level in manifest["levels"]]
    signature = ModelSignature(
        inputs=Schema(
            [
                *(ColSpec(DataType.double, name) for name in manifest["features"]),
                ColSpec(DataType.string, PARTITION, required=False),
            ]
        ),
        outputs=Schema([ColSpec(DataType.double, name) for name in (*names, "p_under_600s")]),
    )
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        model.save(place / "queue-time")
        (place / "queue-time" / MODEL_CARD).write_text(card, encoding="utf-8")
        copy_package(LOADER, place / "code")
        shutil.copyfile(present().path(ENTRY), place / "entry.py")
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(place / "entry.py"),
            artifacts={"queue-time": str(place / "queue-time"), "code": str(place / "code")},
            signature=signature,
            input_example=pd.DataFrame([{**dict.fromkeys(manifest["features"], 0.0), PARTITION: ""}]),
            pip_requirements=requirements(model),
            metadata={"method": manifest["method"], "cluster": manifest["cluster"]},
        )
