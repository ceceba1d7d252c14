"""Write the manifest of every policy's artifact."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from numpy.typing import NDArray

from agent.artifact import FORMAT_VERSION, Artifact
from features.futures.summary import AHEAD_FILLS, SEEN_AHEAD
from features.observe import FEATURES, FILLS
from features.observe import VERSION as OBSERVE_VERSION
from models.provisioning.protocol import Policy


def new_artifact(
    policy: Policy,
    kind: str,
    default: float,
    *,
    parameters: dict[str, Any] | None = None,
    arrays: dict[str, NDArray[Any]] | None = None,
    looks_ahead: bool = False,
) -> Artifact:
    """Make the artifact of a fitted policy. It requires numpy in the installed version.

    looks_ahead: it decides on futures (`features.futures.summary`) as well as on observations.
    """
    return Artifact(new_manifest(policy, kind, default, parameters or {}, looks_ahead), arrays or {})


def new_manifest(
    policy: Policy, kind: str, default: float, parameters: dict[str, Any], looks_ahead: bool = False
) -> dict[str, Any]:
    """Make the manifest of a fitted policy, with the arguments of `new_artifact`."""
    features = SEEN_AHEAD if looks_ahead else FEATURES
    return {
        "policy": policy.name,
        "kind": kind,
        "knob": policy.knob,
        "settings": list(policy.settings),
        "default_setting": default,
        "features": list(features),
        "observe_version": OBSERVE_VERSION,
        "fills": FILLS | {name: fill for name, fill in AHEAD_FILLS.items() if name in features},
        "format_version": FORMAT_VERSION,
        "requirements": [f"numpy=={version('numpy')}"],
        "parameters": parameters,
    }
