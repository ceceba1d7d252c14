"""The released form of a fitted method: arrays from which `agent.distribution` predicts with numpy alone.

Methods that play futures (`simulate-ahead`, `boosting-ahead`, `combination-ahead`, `informed`) have no such form: it
holds no futures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.distribution import FORMAT_VERSION, KIND, Distribution
from features.submission.index import FEATURES, VERSION
from models.provisioning.learning.trees import Tree, flatten
from models.queue_time.conformal import CalibratedMethod
from models.queue_time.ground import SubmittedJobs
from models.queue_time.methods.boosted import BASE_CUTS_H, BoostedDistribution
from models.queue_time.methods.combination import Mixed
from models.queue_time.methods.estimates import Estimated
from models.queue_time.methods.hierarchy import Constant, Hierarchical, Predict
from models.queue_time.methods.partitions import PartitionTable
from models.queue_time.methods.residuals import CUTS_S
from models.queue_time.methods.trout_boosting import BoostedTrees
from models.queue_time.moves import CalibratedLevels
from models.queue_time.protocol import COLUMN, LEVELS, FittedMethod, Rows
from models.tracking import registered
from models.tracking.kinds import QUEUE_TIME
from traces.errors import InputError, WorkError
from traces.store.folder import DataFolder

RELEASABLE = ("limits", "expected", "partition-mean", "partition-median", "boosting", "trout-boosting", "combination")
CHECKED = 32  # observations stored in a released distribution, with their answers

Part = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # entry of the manifest, and its arrays
# Fallbacks for unseen values, in words, as in the manifest.
FALLBACKS = (
    "an unknown or missing partition: the waits of all partitions, with the calibration over all of them",
    "a user, account, QOS or shape without history: the waits and run times of all jobs",
)


class Described(NamedTuple):
    """The meaning of partition numbers and size classes: partition names in order, and the bounds of the classes."""

    partitions: list[str]
    sizes: list[int]


def describe_log(jobs: SubmittedJobs) -> Described:
    """Describe the whole log."""
    record = jobs.log.record
    smallest = int(record.size[record.ran].min())
    names = np.unique(np.asarray(jobs.log.names["partition"], dtype=str))
    return Described([str(name) for name in names], [smallest, 4 * smallest])


def distribution(method: str, fitted: FittedMethod, names: Described, note: dict[str, Any]) -> Distribution:
    """Make the released distribution of a fitted method, calibrated or not; `note` is added to the manifest.

    Raises InputError for a method that is not one of RELEASABLE.
    """
    uncalibrated, moved = (
        (fitted.fitted, fitted.moved)
        if isinstance(fitted, CalibratedMethod)
        else (fitted, CalibratedLevels({}, LEVELS))
    )
    stated, arrays = [], dict(moved.arrays())
    for k, (part, own) in enumerate(_parts(method, uncalibrated, 1.0, 1.0)):
        stated.append(part)
        arrays |= {f"{k}_{name}": array for name, array in own.items()}
    manifest = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "method": method,
        "features": list(FEATURES),
        "observe_version": VERSION,
        "partitions": names.partitions,
        "sizes": names.sizes,
        "parts": stated,
        "levels": LEVELS.tolist(),
        "fallbacks": list(FALLBACKS),
        "requirements": [],
        **note,
    }
    return Distribution(manifest, arrays)


def with_checks(released: Distribution, rows: Rows, partitions: Sequence[str]) -> Distribution:
    """Add CHECKED of the rows, spread over them, with the answers that every loaded copy must reproduce."""
    if not len(rows):
        return released
    at = np.unique(np.linspace(0, len(rows) - 1, CHECKED).astype(np.int64))
    names = [partitions[one] for one in rows.partition[at].tolist()]
    return released.with_checks(rows.observed[at], names)


def released(data: DataFolder, cluster: str, version: int) -> Distribution:
    """Load a released model. Raises WorkError if it is unreadable or its features differ from this program's."""
    folder = registered.folder(data, cluster, QUEUE_TIME) / str(version)
    try:
        return Distribution.load(folder, FEATURES)
    except ValueError as error:
        raise WorkError(f"the queue-time model cannot be used: {error}") from error


def _parts(method: str, fitted: FittedMethod, of_wait: float, of_short: float) -> list[Part]:
    weights = {"of_wait": of_wait, "of_short": of_short}
    if isinstance(fitted, Mixed):
        return [part for one, a, b in fitted.parts for part in _parts(method, one, a * of_wait, b * of_short)]
    if isinstance(fitted, BoostedDistribution):
        return _of_model(fitted, of_wait, of_short)
    if isinstance(fitted, Hierarchical):
        trees = {f"{prefix}{name}": array for prefix, one in (("class_", fitted.p_short), ("number_", fitted.log_wait))
                 for name, array in _trees_of(one, is_probability=prefix == "class_").items()}  # fmt: skip
        part = {"form": "hierarchy", "longest_s": fitted.longest_s, **weights}
        return [(part, {**trees, "short_s": fitted.short_s, "error": fitted.error})]
    if isinstance(fitted, Estimated):
        return [_of_estimate(fitted, weights)]
    if isinstance(fitted, PartitionTable):
        known = sorted(fitted.quantiles_s)
        quantiles = np.stack([*(fitted.quantiles_s[one] for one in known), fitted.of_all])
        short = np.array([*(fitted.short[one] for one in known), fitted.short_of_all])
        arrays = {"partition": np.array(known, np.int64), "quantiles_s": quantiles, "short": short}
        return [({"form": "table", **weights}, arrays)]
    raise InputError(f"method {method!r} has no releasable form; methods with one: {', '.join(RELEASABLE)}")


def _of_model(model: BoostedDistribution, of_wait: float, of_short: float) -> list[Part]:
    """One part for each fit of bins, with equal weights."""
    count = len(model.parts)
    parts = []
    for one in model.parts:
        trees = one.trees or _leaf(0.0)
        of_class = one.of_class if len(one.of_class) else np.zeros(1, np.int64)
        part = {
            "form": "bins", "of_wait": of_wait / count, "of_short": of_short / count, "column": model.base_column,
            "cuts_h": list(BASE_CUTS_H), "is_relative": one.relative, "longest_s": model.longest_s,
        }  # fmt: skip
        parts.append((part, {**trees, "points": one.points, "start": one.start, "of_class": of_class}))
    return parts


def _of_estimate(fitted: Estimated, weights: dict[str, float]) -> Part:
    known = sorted(fitted.residuals.of_group)
    levels = [fitted.residuals.of_group[one][0] for one in known]
    arrays = {
        "of_class": fitted.residuals.of_class,
        "short": fitted.residuals.short,
        "group_class": np.array([one for one, _ in known], np.int64),
        "group": np.array([group for _, group in known], np.int64),
        "group_level": np.array(levels).reshape(len(known), len(LEVELS)),
        "group_short": np.array([fitted.residuals.of_group[one][1] for one in known], np.float64),
    }
    column, longest_s = COLUMN[fitted.feature], fitted.residuals.longest_s
    return {"form": "residuals", "column": column, "cuts_s": list(CUTS_S), "longest_s": longest_s, **weights}, arrays


def _trees_of(predict: Predict, *, is_probability: bool) -> dict[str, NDArray[Any]]:
    """The trees whose sum is the predicted log-odds or number."""
    if isinstance(predict, BoostedTrees):
        return predict.trees
    if not isinstance(predict, Constant):
        raise InputError(f"a hierarchy of {type(predict).__name__} has no releasable form")
    value = float(np.clip(predict.value, 1e-9, 1 - 1e-9))
    return _leaf(float(np.log(value / (1 - value))) if is_probability else predict.value)


def _leaf(value: float) -> dict[str, NDArray[Any]]:
    """One tree with a constant prediction."""
    none = np.full(1, -1)
    return flatten([Tree(np.zeros(1, np.int64), np.zeros(1, np.float32), none, none, np.full(1, value))])
