"""The loader of released queue-time models: they predict the distribution of a job's wait at its submission.

A model is a folder (`agent.model_folder`). This file needs only numpy, and a released model carries copies of it and of
what it imports.

A distribution is a weighted mean of parts, quantile by quantile. Its quantile levels are then corrected by their
coverage on held-out rows (`models.queue_time.conformal`). Each part has one of FORMS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.kinds import MAX_FEATURES
from agent.model_folder import (
    CHECK_TOLERANCE,
    CHECKS,
    MAX_CHECKS,
    ModelParts,
    finite_rows,
    one_line,
    read_model,
    write_model,
)
from agent.trees import TREES, TreeEnsemble, check_trees

FORMAT_VERSION = 1
KIND = "distribution"
MAX_MANIFEST_BYTES, MAX_PARTS = 1 << 22, 64  # names of partitions and the release's figures: 20 kB so far
SHORT_S = 600  # a short wait is under 10 min
LEVELS: NDArray[np.float64] = np.arange(1, 40) / 40.0  # of every forecast: 0.025, 0.05 ... 0.975
LONGEST_S = 366 * 86400.0  # predicted waits are clipped to this
BLOCK_ROWS = 512
MOVES = ("moved_group", "moved_level", "moved_of_all")
KEYS: dict[str, type] = {
    "kind": str,
    "method": str,
    "features": list,
    "partitions": list,
    "sizes": list,
    "parts": list,
    "format_version": int,
    "requirements": list,
}

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


class Waits(NamedTuple):
    """The predicted waits of n jobs."""

    quantiles_s: Float64s  # (n, len(LEVELS)) rising along each row
    p_under_600s: Float64s  # (n,)


class ForecastInputs(NamedTuple):
    """The inputs of a part for n jobs."""

    observed: Float32s  # (n, features)
    partition: Int64s  # (n,) number of the partition; -1 for an unknown one
    group: Int64s  # (n,) number of the group (partition x size class); -1 for an unknown partition


class DistributionPart(NamedTuple):
    """A part of a distribution, ready to predict."""

    stated: Mapping[str, Any]  # its entry in the manifest
    arrays: Arrays
    forests: Mapping[str, TreeEnsemble]  # by the prefix of their arrays


Form = Callable[[DistributionPart, ForecastInputs], Waits]


@dataclass(frozen=True)
class Distribution:
    """A fitted distribution of the wait.

    manifest: `kind` (KIND), `method`, `features` (names in order), `partitions` (names, by number), `sizes` (bounds of
    the size classes; `size` is one of the features), `parts` (each with its `form`, the weights `of_wait` and
    `of_short`, and the form's numbers), `format_version`, `requirements`, and the release's own description. arrays:
    names of part k begin with `k_`; MOVES are shared. checks: `observations` and `partition`, with the required
    `quantiles_s` and `p_under_600s`; None if there are none.

    Raises ValueError, one line, if the parts are inconsistent.
    """

    manifest: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    checks: dict[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_manifest(self.manifest)
        for name, array in self.arrays.items():
            if array.dtype.kind not in "fiu":
                raise ValueError(f"array {name} of the distribution is {array.dtype}, not numeric")
        check_moves(self.arrays)
        for k, part in enumerate(self.manifest["parts"]):
            own = self._arrays_of(k)
            needed, trees = NEEDED[part["form"]]
            missing = [name for name in needed if name not in own]
            missing += [f"{prefix}{name}" for prefix in trees for name in TREES if f"{prefix}{name}" not in own]
            if missing:
                raise ValueError(f"part {k} of the distribution lacks the arrays {missing}")
            for prefix in trees:
                check_trees({name: own[f"{prefix}{name}"] for name in TREES}, len(self.manifest["features"]))

    def _arrays_of(self, k: int) -> dict[str, NDArray[Any]]:
        """Return the arrays of part k; their names lose the prefix `k_`."""
        begins = f"{k}_"
        return {name.removeprefix(begins): array for name, array in self.arrays.items() if name.startswith(begins)}

    @cached_property
    def parts(self) -> list[DistributionPart]:
        """The parts with the tables of their trees. Raises ValueError for trees that are too deep."""
        made = []
        for k, stated in enumerate(self.manifest["parts"]):
            own = self._arrays_of(k)
            _, trees = NEEDED[stated["form"]]
            forests = {prefix: TreeEnsemble({name: own[f"{prefix}{name}"] for name in TREES}) for prefix in trees}
            made.append(DistributionPart(stated, own, forests))
        return made

    def forecast(self, observations: ArrayLike, partition: Sequence[str] | None = None) -> Waits:
        """Predict the waits for observations (n, features) and each one's partition name.

        None, or an unknown name, means any partition. Raises ValueError for a wrong width or a number that is not
        finite.
        """
        rows = self._checked(observations)
        names = {name: number for number, name in enumerate(self.manifest["partitions"])}
        code = np.full(len(rows), -1, np.int64)
        if partition is not None:
            if len(partition) != len(rows):
                raise ValueError(f"{len(partition)} partitions for {len(rows)} observations")
            code = np.array([names.get(name, -1) for name in partition], np.int64)
        size = rows[:, self.manifest["features"].index("size")]
        size_class = np.searchsorted(np.asarray(self.manifest["sizes"], np.float64), size)
        inputs = ForecastInputs(rows, code, np.where(code < 0, -1, code * 3 + size_class))
        quantiles, short = np.zeros((len(rows), len(LEVELS))), np.zeros(len(rows))
        for begin in range(0, len(rows), BLOCK_ROWS):
            block = slice(begin, begin + BLOCK_ROWS)
            of_block = ForecastInputs(inputs.observed[block], inputs.partition[block], inputs.group[block])
            for part in self.parts:
                waits = FORMS[part.stated["form"]](part, of_block)
                quantiles[block] += float(part.stated["of_wait"]) * sorted_quantiles(waits.quantiles_s)
                short[block] += float(part.stated["of_short"]) * waits.p_under_600s
        group, level, of_all = (self.arrays[name] for name in MOVES)
        return Waits(move(sorted_quantiles(quantiles), inputs.group, group, level, of_all), np.clip(short, 0.0, 1.0))

    def with_checks(self, observations: ArrayLike, partition: Sequence[str]) -> Distribution:
        """Return the same model with checks: wherever it is loaded it must answer these observations as here."""
        rows = self._checked(observations)
        waits = self.forecast(rows, partition)
        answers = {"quantiles_s": waits.quantiles_s.tolist(), "p_under_600s": waits.p_under_600s.tolist()}
        return replace(self, checks={"observations": rows.tolist(), "partition": list(partition), **answers})

    def replay(self) -> None:
        """Raise ValueError unless the observations of `checks` give the stored answers."""
        if self.checks is None:
            return
        rows = self._checked(self.checks["observations"])
        if len(rows) > MAX_CHECKS:
            raise ValueError(f"{CHECKS} holds more than {MAX_CHECKS} observations")
        waits = self.forecast(rows, self.checks["partition"])
        for name, found in waits._asdict().items():
            stored = np.asarray(self.checks[name], np.float64)
            if stored.shape != found.shape:
                raise ValueError(f"{CHECKS}: {name} has shape {stored.shape}, not {found.shape}")
            differs = np.abs(found - stored) > CHECK_TOLERANCE * np.maximum(1.0, np.abs(stored))
            if differs.any():
                place = tuple(int(one) for one in np.argwhere(differs)[0])
                raise ValueError(
                    f"{CHECKS}: {name} of observation {place[0]} is {found[place]:.9g} here, but {stored[place]:.9g} "
                    "at the release: this is not the released model, or this installation of numpy computes differently"
                )

    def _checked(self, observations: ArrayLike) -> Float32s:
        return finite_rows(observations, self.manifest["features"], "distribution")

    def save(self, folder: Path | str) -> None:
        """Write the folder, replacing an older one as a whole. The same distribution gives the same bytes."""
        write_model(Path(folder), ModelParts(self.manifest, self.arrays, self.checks))

    @classmethod
    def load(cls, folder: Path | str, features: Sequence[str] | None = None) -> Distribution:
        """Read a folder. features: the names that the caller will observe, in order; the model must match them.

        Raises ValueError, one line, for anything that is not a complete distribution of this format.
        """
        folder = Path(folder)
        with one_line(f"{folder}: unreadable queue-time model"):
            loaded = cls(*read_model(folder, MAX_MANIFEST_BYTES, check_manifest, features))
            loaded.replay()
            return loaded


# -- checks --------------------------------------------------------------------------------------------------------


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise ValueError unless the manifest has every key, of its type, in this format."""
    if manifest.get("kind") != KIND:
        raise ValueError(f"manifest.json: kind is {manifest.get('kind')!r}, not {KIND!r}")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"format_version is {manifest.get('format_version')!r}; this program reads {FORMAT_VERSION}")
    for key, kind in KEYS.items():
        if not isinstance(manifest.get(key), kind):
            raise ValueError(f"manifest.json: {key} is missing or has the wrong type")
    features, parts = manifest["features"], manifest["parts"]
    if not all(isinstance(n, str) for n in features) or not len(set(features)) == len(features) <= MAX_FEATURES:
        raise ValueError(f"manifest.json: features must be distinct names, at most {MAX_FEATURES}")
    if "size" not in features:
        raise ValueError("manifest.json: features must include size")
    if not all(isinstance(name, str) for name in manifest["partitions"]):
        raise ValueError("manifest.json: partitions must be names")
    if not 1 <= len(parts) <= MAX_PARTS:
        raise ValueError(f"manifest.json: there are {len(parts)} parts; allowed: 1 to {MAX_PARTS}")
    for k, part in enumerate(parts):
        if not isinstance(part, dict) or part.get("form") not in FORMS:
            raise ValueError(f"manifest.json: the form of part {k} is not one of {', '.join(FORMS)}")
        for weight in ("of_wait", "of_short"):
            if not isinstance(part.get(weight), int | float) or not 0.0 <= part[weight] <= 1.0:
                raise ValueError(f"manifest.json: {weight} of part {k} is not within 0 to 1")
        if "column" in part and not (isinstance(part["column"], int) and 0 <= part["column"] < len(features)):
            raise ValueError(
                f"manifest.json: column of part {k} is {part['column']!r}; allowed: 0 to {len(features) - 1}"
            )


def check_moves(arrays: Arrays) -> None:
    """Raise ValueError unless each group, and all jobs, have one corrected level from 0 to 1 for each of LEVELS."""
    if any(name not in arrays for name in MOVES):
        raise ValueError(f"the distribution lacks one of the arrays {', '.join(MOVES)}")
    group, level, of_all = (arrays[name] for name in MOVES)
    if of_all.shape != LEVELS.shape or level.shape != (len(group), len(LEVELS)):
        raise ValueError(f"there must be {len(LEVELS)} moved levels per group")
    if not all(((array >= 0.0) & (array <= 1.0)).all() for array in (level, of_all)):
        raise ValueError("moved levels must lie within 0 to 1")


# -- arithmetic that fitting shares --------------------------------------------------------------------------------


def sorted_quantiles(quantiles_s: Float64s) -> Float64s:
    """Sort each row of (n, levels) and clip it to 0 to LONGEST_S."""
    return np.clip(np.sort(quantiles_s, axis=1), 0.0, LONGEST_S)


def move(quantiles_s: Float64s, group: Int64s, groups: Int64s, level: Float64s, of_all: Float64s) -> Float64s:
    """Interpolate rising quantiles (n, levels) at corrected levels.

    level: (g, levels), the levels of `groups` (g,). of_all: the levels of all other groups. Below the lowest quantile
    the curve continues to half of it; above the highest, to 1.5 times it.
    """
    out = np.empty_like(quantiles_s)
    ends = np.concatenate([[0.0], LEVELS, [1.0]])
    padded = np.concatenate([quantiles_s[:, :1] * 0.5, quantiles_s, quantiles_s[:, -1:] * 1.5], axis=1)
    row_of = {int(one): row for row, one in enumerate(groups)}
    for one in np.unique(group):
        rows = group == one
        known = row_of.get(int(one))
        corrected = of_all if known is None else level[known]
        below = np.clip(np.searchsorted(ends, corrected) - 1, 0, len(ends) - 2)
        share = (corrected - ends[below]) / (ends[below + 1] - ends[below])
        out[rows] = padded[rows][:, below] * (1 - share) + padded[rows][:, below + 1] * share
    return sorted_quantiles(out)


def of_bins(score: Float64s, points: Float64s, base: Float64s, longest_s: float) -> Waits:
    """Compute the waits from class scores (n, classes).

    points: (classes x points per class,), the waits that represent each class, as log(1 + s) minus `base` (n,).
    Predicted waits are at most twice `longest_s`.
    """
    share = np.exp(score - score.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    many = len(points) // score.shape[1]
    spread = np.repeat(share / many, many, axis=1)
    upto = np.cumsum(spread, axis=1)
    at = np.stack([(upto < level * (1 - 1e-9)).sum(axis=1) for level in LEVELS], axis=1)
    log_wait = points[np.minimum(at, len(points) - 1)] + base[:, None]
    p = (spread * (points[None] < np.log1p(SHORT_S) - base[:, None])).sum(axis=1)
    return Waits(np.clip(np.expm1(log_wait), 0.0, 2 * longest_s), p)


def of_hierarchy(p: Float64s, log_wait: Float64s, short_s: Float64s, error: Float64s, longest_s: float) -> Waits:
    """Mix a short wait with probability p (n,) and a long wait with its errors.

    short_s: (levels,), quantiles of short waits. log_wait: (n,), the long wait as log(1 + s). error: (levels,),
    quantiles of the error of log_wait.
    """
    p = np.clip(p, 1e-4, 1 - 1e-4)[:, None]
    level = LEVELS[None]
    short = np.interp(np.minimum(level / p, 1.0), LEVELS, short_s)
    deviation = np.interp(np.clip((level - p) / (1 - p), 0.0, 1.0), LEVELS, error)
    long = np.clip(np.expm1(log_wait[:, None] + deviation), SHORT_S, longest_s)
    return Waits(np.where(level <= p, short, long), p[:, 0])


# -- forms ---------------------------------------------------------------------------------------------------------


def bins(part: DistributionPart, inputs: ForecastInputs) -> Waits:
    """Predict with trees that score classes of the wait.

    The scores start from the class (by `cuts_h`) of the estimate in feature `column`, in hours. is_relative: the points
    are relative to that estimate. Arrays: `start` (classes of estimates, classes), `of_class` (trees,).
    """
    stated, arrays = part.stated, part.arrays
    base_h = inputs.observed[:, stated["column"]].astype(np.float64)
    start = arrays["start"][np.searchsorted(np.asarray(stated["cuts_h"]), base_h)].astype(np.float64)
    score = part.forests[""].sums(inputs.observed, arrays["of_class"], start)
    base = np.log1p(np.maximum(base_h, 0.0) * 3600.0) if stated["is_relative"] else np.zeros(len(base_h))
    return of_bins(score, arrays["points"], base, float(stated["longest_s"]))


def hierarchy(part: DistributionPart, inputs: ForecastInputs) -> Waits:
    """Predict the log-odds of a short wait by the trees `class_`, and log(1 + s) of a long wait by `number_`."""
    odds, number = (
        np.ascontiguousarray(part.forests[prefix].leaves(inputs.observed).T).sum(axis=1)  # row by row, pairwise
        for prefix in ("class_", "number_")
    )
    p = 1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0)))
    return of_hierarchy(p, number, part.arrays["short_s"], part.arrays["error"], float(part.stated["longest_s"]))


def residuals(part: DistributionPart, inputs: ForecastInputs) -> Waits:
    """Predict the estimate of feature `column` (h) plus its residuals, by class of estimate (`cuts_s`) and group."""
    stated, arrays = part.stated, part.arrays
    point_s = inputs.observed[:, stated["column"]].astype(np.float64) * 3600.0
    kind = np.searchsorted(np.asarray(stated["cuts_s"]), point_s, side="right")
    level, short = arrays["of_class"][kind].astype(np.float64), arrays["short"][kind].astype(np.float64)
    for k in range(len(arrays["group"])):
        members = (kind == arrays["group_class"][k]) & (inputs.group == arrays["group"][k])
        level[members], short[members] = arrays["group_level"][k], arrays["group_short"][k]
    quantiles = np.expm1(np.log1p(np.maximum(point_s, 0.0))[:, None] + level)
    return Waits(np.minimum(quantiles, float(stated["longest_s"])), short)


def table(part: DistributionPart, inputs: ForecastInputs) -> Waits:
    """Predict the quantiles and the share of short waits of each partition; of all jobs for an unknown one."""
    arrays = part.arrays
    row_of = {int(one): row for row, one in enumerate(arrays["partition"])}
    rows = np.array([row_of.get(int(one), len(row_of)) for one in inputs.partition], np.int64)
    return Waits(arrays["quantiles_s"][rows].astype(np.float64), arrays["short"][rows].astype(np.float64))


FORMS: dict[str, Form] = {"bins": bins, "hierarchy": hierarchy, "residuals": residuals, "table": table}
# For each form: the arrays that it needs, and the prefixes of its trees.
NEEDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bins": (("points", "start", "of_class"), ("",)),
    "hierarchy": (("short_s", "error"), ("class_", "number_")),
    "residuals": (("of_class", "short", "group", "group_class", "group_level", "group_short"), ()),
    "table": (("partition", "quantiles_s", "short"), ()),
}
