"""Save a released model as an MLflow pyfunc that does not need Baton: the model, its loader and the entry script.

A policy's pyfunc takes one double column per feature and the optional parameter `setting`; it returns `submit` and
`score`. A queue-time model's takes one double column per feature and the name of the partition; it returns a double
column per quantile level, such as `q0.5` (s), and `p_under_600s`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.tracking.clients import quiet
from models.tracking.kinds import POLICY, QUEUE_TIME
from traces.cache.closure import present

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

    from agent.artifact import Artifact
    from agent.distribution import Distribution

ENTRY = "models.tracking.pyfunc_entry"
MODEL_CARD = "MODEL_CARD.md"
PARTITION = "partition"  # the only input that is not a number
LOADERS = {  # modules copied into a release of each kind, as one package
    POLICY: ("agent.artifact", "agent.kinds", "agent.model_folder", "agent.trees", "features.observe"),
    QUEUE_TIME: ("agent.distribution", "agent.kinds", "agent.model_folder", "agent.trees"),
}


def shipped(model: str) -> tuple[str, ...]:
    """The modules whose code is part of a release of that kind."""
    return (ENTRY, *LOADERS[model])


def save_pyfunc(released: Artifact | Distribution, folder: Path, model: str, card: str = "") -> None:
    """Write the model with its loader, its card (Markdown) and pinned requirements."""
    quiet()
    import mlflow.pyfunc
    import pandas as pd

    manifest = released.manifest
    example: dict[str, Any] = dict.fromkeys(manifest["features"], 0.0)
    if model == QUEUE_TIME:
        example[PARTITION] = ""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        released.save(place / model)
        if card:
            (place / model / MODEL_CARD).write_text(card, encoding="utf-8")
        _copy_package(LOADERS[model], place / "code")
        shutil.copyfile(present().path(ENTRY), place / "entry.py")
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(place / "entry.py"),
            artifacts={model: str(place / model), "code": str(place / "code")},
            signature=_signature(manifest, model),
            input_example=pd.DataFrame([example]),
            pip_requirements=requirements(released),
            metadata=_metadata(manifest, model),
        )


def _signature(manifest: Mapping[str, Any], model: str) -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    features = [ColSpec(DataType.double, name) for name in manifest["features"]]
    if model == POLICY:
        return ModelSignature(
            inputs=Schema([*features]),
            outputs=Schema([ColSpec(DataType.boolean, "submit"), ColSpec(DataType.double, "score")]),
            params=ParamSchema([ParamSpec("setting", DataType.double, float(manifest["default_setting"]))]),
        )
    outputs = [*(f"q{level:g}" for level in manifest["levels"]), "p_under_600s"]
    return ModelSignature(
        inputs=Schema([*features, ColSpec(DataType.string, PARTITION, required=False)]),
        outputs=Schema([ColSpec(DataType.double, name) for name in outputs]),
    )


def _metadata(manifest: Mapping[str, Any], model: str) -> dict[str, Any]:
    names = ("policy", "knob", "settings") if model == POLICY else ("method", "cluster")
    return {name: list(value) if isinstance(value := manifest[name], tuple) else value for name in names}


def _copy_package(modules: Sequence[str], folder: Path) -> None:
    """Copy the modules into a new folder, as a package whose modules import each other relatively."""
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for module in modules:
        source = present().path(module)
        text = source.read_text(encoding="utf-8").replace("from agent.", "from .")
        (folder / source.name).write_text(text, encoding="utf-8")


def requirements(released: Artifact | Distribution) -> list[str]:
    """Pinned pip lines of a release: the model's own lines first, then those of this environment.

    Only mlflow-skinny is pinned: loading needs no more of MLflow, while looking a version up in the registry does.
    """
    own = [str(line) for line in released.manifest["requirements"]]
    named = {_package(line) for line in own}
    shared = ("mlflow-skinny", "numpy", "pandas")
    return [*own, *(f"{name}=={installed_version(name)}" for name in shared if name not in named)]


def _package(requirement: str) -> str:
    """Package name of a pip line, normalised."""
    name = requirement.split(";")[0]
    for mark in "[=<>!~ ":
        name = name.split(mark)[0]
    return name.strip().lower().replace("_", "-")
