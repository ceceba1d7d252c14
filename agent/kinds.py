"""The kinds of policy artifacts: how each scores observations, and which arrays and parameters it must have.

An artifact may be untrusted, so each kind checks its arrays before they are used. Forests and boosted trees are stored
as arrays too. Their libraries' own model files would require those libraries on every agent, and XGBoost ends the
process on a malformed one. This file needs only numpy and `agent.trees`; a released model carries a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agent.trees import TREES, check_trees, walked

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]

REMAINING = "remaining_h"  # the feature that every kind needs: hours until the predecessor's end
MAX_FEATURES = 1024  # also for the inputs of a model; 46
MAX_SETTINGS = 100  # also the most that a policy may declare for a comparison; 15
MAX_TREES = 4096  # every row walks all of them at once; 121
MAX_WIDTH = 2048  # of a network's layer; 64
MAX_LAYERS = 16  # 3
# Bound for weights, leaf values and settings; 11. Within it no score overflows: a network's score is at most
# (width x bound) to the power of layers, under 1e154. An overflowing sum would be NaN, and NaN never means "submit".
MAX_NUMBER = 1e6
MAX_LOG_WAIT = 300.0  # cap of the logarithm of a predicted wait in hours; its exponential is still finite


class Fitted(Protocol):
    """The parts of an `agent.artifact.Artifact` that a kind reads."""

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        ...

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The numeric parameters."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are not arrays."""
        ...

    @property
    def inputs(self) -> NDArray[np.int64]:
        """Columns of an observation that are the model's inputs, in its order."""
        ...

    def column(self, name: Any) -> int:
        """Return the column of that feature in an observation. Raises ValueError if there is none."""
        ...


def within_bound(numbers: NDArray[Any]) -> bool:
    """Whether all numbers are within +-MAX_NUMBER."""
    return bool(((numbers >= -MAX_NUMBER) & (numbers <= MAX_NUMBER)).all())


def nothing(artifact: Fitted) -> None:
    """Accept an artifact without further checks."""


def no_arrays(artifact: Fitted) -> tuple[str, ...]:
    """Return no names, for a kind without arrays."""
    return ()


@dataclass(frozen=True)
class ArtifactKind:
    """The functions of one kind of artifact: its scores, the names of its arrays, and its checks."""

    scores: Callable[[Fitted, Float32s, Float64s], Float64s]  # (n, F), (k,) -> (k, n)
    arrays: Callable[[Fitted], tuple[str, ...]] = no_arrays
    check: Callable[[Fitted], None] = nothing


def constant_lead(artifact: Fitted, rows: Float32s, settings: Float64s) -> Float64s:
    """Submit `setting` hours before the predecessor's end; 0 is the reactive policy."""
    return settings[:, None] - rows[:, artifact.column(REMAINING)].astype(np.float64)


def estimate_ratio(artifact: Fitted, rows: Float32s, settings: Float64s) -> Float64s:
    """Submit when setting x estimated wait (a feature, in hours) >= remaining time."""
    estimate = rows[:, artifact.column(artifact.parameters.get("feature"))].astype(np.float64)
    return settings[:, None] * estimate - rows[:, artifact.column(REMAINING)].astype(np.float64)


def check_estimate(artifact: Fitted) -> None:
    """Raise ValueError unless the feature of the estimate exists."""
    artifact.column(artifact.parameters.get("feature"))


def trees(artifact: Fitted, rows: Float32s, settings: Float64s) -> Float64s:
    """Submit when setting x (1 h + predicted wait) - 1 h >= remaining time.

    Parameters: `base`, a feature that estimates the wait in hours, and `inputs`, the names of the trees' features. The
    sum of the trees is the logarithm of (1 + wait) / (1 + base). The error of a predicted wait grows with the wait, so
    the setting is a factor. The added hour lets the factor move predictions of zero too.
    """
    base = rows[:, artifact.column(artifact.parameters["base"])].astype(np.float64)
    log_wait = np.log1p(np.maximum(base, 0.0)) + sum_of_trees(artifact, rows[:, artifact.inputs])
    due = rows[:, artifact.column(REMAINING)].astype(np.float64) + 1.0
    return settings[:, None] * np.exp(np.clip(log_wait, 0.0, MAX_LOG_WAIT)) - due


def check_inputs(artifact: Fitted) -> None:
    """Raise ValueError unless `base` is a feature of the artifact and `inputs` a list of bounded length."""
    artifact.column(artifact.parameters.get("base"))
    inputs = artifact.parameters.get("inputs")
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MAX_FEATURES:
        raise ValueError(f"manifest.json: parameters.inputs must be a list of 1 to {MAX_FEATURES} features")


def sum_of_trees(artifact: Fitted, rows: Float32s) -> Float64s:
    """Return the sum over trees (n,) for rows (n, inputs)."""
    sums: Float64s = walked(artifact.arrays, rows).sum(axis=1)
    return sums


def stopping_trees(artifact: Fitted, rows: Float32s, settings: Float64s) -> Float64s:
    """Compute the log-odds that submitting now costs less than waiting; the setting is the price of overlap.

    The price is in hours per hour of overlap. Parameters: `inputs`, features in hours (the trees take the signed
    logarithm of each, minus that of the remaining time); `base`, one of the inputs; `sharpness`; `prices`, rising.
    `group` (trees,) assigns each tree to a sum. Sum 0 models the chance that a successor submitted now starts too late;
    sum i is its correction for price i.
    score = sharpness x base + sum 0 - log(setting) + the correction, interpolated linearly in the logarithm of the
    price between the prices on either side of the setting, and constant beyond the last price.
    """
    normal = relative_to_remaining(artifact, rows, artifact.inputs).astype(np.float32)
    leaves, group = walked(artifact.arrays, normal), artifact.arrays["group"]
    prices = np.log(np.asarray(artifact.parameters["prices"], np.float64))
    sums = np.stack([leaves[:, group == i].sum(axis=1) for i in range(len(prices) + 1)])
    base = relative_to_remaining(artifact, rows, np.asarray([artifact.column(artifact.parameters["base"])]))[:, 0]
    log_price = np.log(np.maximum(settings, 1e-6))
    place = np.interp(log_price, prices, np.arange(1.0, len(prices) + 1))  # position in `sums`
    before = np.minimum(place.astype(np.int64), max(len(prices) - 1, 1))
    share = (place - before)[:, None]
    changes = (1.0 - share) * sums[before] + share * sums[np.minimum(before + 1, len(prices))]
    scores: Float64s = float(artifact.parameters["sharpness"]) * base + sums[0] - log_price[:, None] + changes
    return scores


def relative_to_remaining(artifact: Fitted, rows: Float32s, columns: NDArray[np.int64]) -> Float64s:
    """Return (n, columns): the signed logarithm of those features (hours), minus that of the remaining time."""
    return signed_log(rows[:, columns]) - signed_log(rows[:, [artifact.column(REMAINING)]])


def check_stopping_trees(artifact: Fitted) -> None:
    """Raise ValueError unless `check_forest` passes and prices and groups are consistent."""
    check_forest(artifact)
    prices, sharpness = artifact.parameters.get("prices"), artifact.parameters.get("sharpness")
    if (
        not isinstance(prices, list)
        or not 1 <= len(prices) <= MAX_SETTINGS
        or not all(is_positive(price) for price in prices)
        or sorted(set(prices)) != prices
    ):
        raise ValueError(f"manifest.json: prices must be 1 to {MAX_SETTINGS} rising positive numbers")
    if not is_positive(sharpness):
        raise ValueError("manifest.json: sharpness must be a positive number")
    group = artifact.arrays["group"]
    if group.dtype.kind not in "iu" or group.shape != artifact.arrays["root"].shape:
        raise ValueError("the trees' group must be one integer per tree")
    if (group < 0).any() or (group > len(prices)).any():
        raise ValueError(f"a tree's group is not within 0 to {len(prices)}")


def is_positive(number: Any) -> bool:
    """Whether it is a number from 1 / MAX_NUMBER to MAX_NUMBER."""
    return isinstance(number, (int, float)) and not isinstance(number, bool) and 1 / MAX_NUMBER <= number <= MAX_NUMBER


def check_forest(artifact: Fitted) -> None:
    """Raise ValueError unless a walk through the trees is short, ends, and adds bounded values."""
    check_inputs(artifact)
    threshold, child, value, root = (artifact.arrays[name] for name in ("threshold", "child", "value", "root"))
    bounds = f"the trees' thresholds must be numbers (infinity for leaves), and their values within +-{MAX_NUMBER:g}"
    if not root.size:
        raise ValueError("the trees' arrays must hold at least one tree")
    if not within_bound(value):
        raise ValueError(bounds)
    check_trees({name: artifact.arrays[name] for name in TREES}, len(artifact.inputs), MAX_TREES)
    if not (threshold[child == np.arange(len(child))] == np.inf).all():
        raise ValueError(bounds)


def mlp(artifact: Fitted, rows: Float32s, settings: Float64s) -> Float64s:
    """Evaluate a ReLU network with a linear skip path; the last input is log(setting), the weight of overlap.

    Head `q`: two outputs, the values of waiting and of submitting; the score is their difference. Head `logit`: one
    output. Products are in float64; they differ between processors, but far too little to change a decision.
    """
    arrays = {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in artifact.arrays.items()}
    held = artifact.arrays
    normal = network_inputs(rows, held["column"], held["minus"], held["mean"], held["scale"]).astype(np.float64)
    first = normal @ arrays["weight_0"][:, :-1].T + arrays["bias_0"]
    past = normal @ arrays["skip"][:, :-1].T
    conditions = np.log(np.maximum(settings, 1e-6)) / arrays["condition_scale"][0]
    out = np.empty((len(settings), len(rows)), np.float64)
    for i, condition in enumerate(conditions):
        hidden = first + condition * arrays["weight_0"][:, -1]
        for layer in range(1, artifact.parameters["layers"]):
            hidden = np.maximum(hidden, 0.0) @ arrays[f"weight_{layer}"].T + arrays[f"bias_{layer}"]
        hidden = hidden + past + condition * arrays["skip"][:, -1]
        out[i] = hidden[:, 1] - hidden[:, 0] if artifact.parameters["head"] == "q" else hidden[:, 0]
    return out


def network_inputs(
    rows: Float32s,
    column: NDArray[Any],
    minus: NDArray[Any],
    mean: NDArray[Any],
    scale: NDArray[Any],
    bound: float = 5.0,
) -> Float32s:
    """Return inputs (n, i) as float32, standardised and clipped to +-bound (no network was trained outside it).

    Input i is the signed log(1 + |x|) of feature column[i], minus that of feature minus[i] unless it is -1. So an
    input can be the ratio of an estimated wait to the remaining time, which means the same at any load.
    """
    taken = signed_log(rows[:, column]) - np.where(minus >= 0, signed_log(rows[:, minus]), 0.0)
    inputs: Float32s = np.clip((taken - mean) / scale, -bound, bound).astype(np.float32)
    return inputs


def signed_log(numbers: Float32s) -> Float64s:
    """Compute sign(x) log(1 + |x|) in float64, because numpy's float32 logarithm differs between processors."""
    wide = numbers.astype(np.float64)
    logarithm: Float64s = np.sign(wide) * np.log1p(np.abs(wide))
    return logarithm


def mlp_arrays(artifact: Fitted) -> tuple[str, ...]:
    """Return the names of the arrays of a network with `layers` layers."""
    layers = artifact.parameters.get("layers")
    if not isinstance(layers, int) or not 1 <= layers <= MAX_LAYERS:
        raise ValueError(f"manifest.json: parameters.layers is {layers!r}; allowed: 1 to {MAX_LAYERS}")
    names = [f"{part}_{layer}" for layer in range(layers) for part in ("weight", "bias")]
    return ("column", "minus", "mean", "scale", "condition_scale", "skip", *names)


def check_mlp(artifact: Fitted) -> None:
    """Raise ValueError unless the layers' shapes chain from the features and the condition to the head."""
    arrays, features = artifact.arrays, len(artifact.manifest["features"])
    column, minus, width = arrays["column"], arrays["minus"], arrays["column"].size
    outputs = {"q": 2, "logit": 1}.get(str(artifact.parameters.get("head")))
    if max(max(array.shape, default=0) for array in arrays.values()) > MAX_WIDTH:
        raise ValueError(f"a network's layers must be at most {MAX_WIDTH} wide")
    if not all(within_bound(array) for array in arrays.values()):
        raise ValueError(f"a network's numbers must lie within +-{MAX_NUMBER:g}")
    if any(arrays[name].shape != (width,) for name in ("column", "minus", "mean", "scale")):
        raise ValueError("a network's column, minus, mean and scale must have the same length")
    if column.dtype.kind not in "iu" or minus.dtype.kind != "i" or arrays["condition_scale"].shape != (1,):
        raise ValueError("a network's column and minus must be integers and condition_scale one number")
    if not width or column.min() < 0 or minus.min() < -1 or max(column.max(), minus.max()) >= features:
        raise ValueError(f"a network's inputs must be features from 0 to {features - 1}")
    if min(arrays["scale"].min(), arrays["condition_scale"][0]) < 1 / MAX_NUMBER:
        raise ValueError(f"a network's scales must be at least {1 / MAX_NUMBER:g}")
    if arrays["skip"].shape != (outputs, width + 1):
        raise ValueError(f"the network's skip has shape {arrays['skip'].shape}, not ({outputs}, {width + 1})")
    width += 1
    for layer in range(artifact.parameters["layers"]):
        weight, bias = arrays[f"weight_{layer}"], arrays[f"bias_{layer}"]
        if weight.ndim != 2 or weight.shape[1] != width or bias.shape != weight.shape[:1]:
            raise ValueError(f"layer {layer} of the network has shape {weight.shape}, {bias.shape}; input is {width}")
        width = weight.shape[0]
    if width != outputs:
        raise ValueError(f"the network has {width} outputs; head {artifact.parameters.get('head')!r} needs {outputs}")


KINDS: dict[str, ArtifactKind] = {
    "constant-lead": ArtifactKind(constant_lead),
    "estimate-ratio": ArtifactKind(estimate_ratio, check=check_estimate),
    "trees": ArtifactKind(trees, lambda artifact: TREES, check_forest),
    "stopping-trees": ArtifactKind(stopping_trees, lambda artifact: (*TREES, "group"), check_stopping_trees),
    "mlp": ArtifactKind(mlp, mlp_arrays, check_mlp),
}
