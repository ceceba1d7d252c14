"""The loader of released queue-time models: a distribution of a job's wait from what is known at its submission.

A folder as `agent.artifact` has it: `manifest.json`, `arrays.npz` (no pickles) and `checks.json`, observations with the
answers that they must give wherever it is loaded. numpy, `agent.artifact` for the folder and `agent.trees`: a released
model carries a copy of the three files.

A distribution is a weighted mean of parts, quantile by quantile, whose quantiles are then moved by what they covered on
rows held back (`models.queue_time.conformal`). Each part has one of FORMS.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.artifact import (
    ARRAYS,
    CHECK_TOLERANCE,
    CHECKS,
    MAX_ARRAY_BYTES,
    MAX_CHECKS,
    MAX_CHECKS_BYTES,
    MAX_FEATURES,
    difference,
    digests,
    json_object,
    one_line,
    pack_arrays,
    read_file,
    unpack_arrays,
    write_folder,
)
from agent.trees import TREES, TreeEnsemble, check_trees

FORMAT_VERSION = 1
KIND = "distribution"
MAX_MANIFEST_BYTES = 1 << 22  # names of partitions, and the release's figures; 20 kB
MAX_PARTS = 64
SHORT_S = 600  # "under ten minutes"
LEVELS: NDArray[np.float64] = np.arange(1, 40) / 40.0  # of every forecast: .025, .05 ... .975
LONGEST_S = 366 * 86400.0  # a wait is cut here
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
    """What is said of n jobs."""

    quantiles_s: Float64s  # (n, len(LEVELS)) rising along each row
    p_under_600s: Float64s  # (n,)


class ForecastInputs(NamedTuple):
    """What a part sees of n jobs."""

    observed: Float32s  # (n, features)
    partition: Int64s  # (n,) number of the partition, -1 for one that was never seen
    group: Int64s  # (n,) partition x size, negative likewise


class DistributionPart(NamedTuple):
    """A part of a distribution as it is asked."""

    stated: Mapping[str, Any]  # of it in the manifest
    arrays: Arrays
    forests: Mapping[str, TreeEnsemble]  # by the prefix of their arrays


Form = Callable[[DistributionPart, ForecastInputs], Waits]


@dataclass(frozen=True)
class Distribution:
    """A fitted distribution of the wait.

    manifest: `kind` (KIND), `method`, `features` (names in order), `partitions` (names, by number), `sizes` (bounds of
    the classes of size; `size` is one of the features), `parts` (of each its `form`, the weights `of_wait` and
    `of_short`, and the form's numbers), `format_version`, `requirements`, and what the release says of itself. arrays:
    those of part k begin with `k_`; beside them MOVES. checks: `observations`, `partition`, and the `quantiles_s` and
    `p_under_600s` that they must give; None where nobody made any.

    Raises ValueError, one line, where any of it does not fit together.
    """

    manifest: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    checks: dict[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_manifest(self.manifest)
        for name, array in self.arrays.items():
            if array.dtype.kind not in "fiu":
                raise ValueError(f"array {name} of the distribution is not numeric but {array.dtype}")
        check_moves(self.arrays)
        for k, part in enumerate(self.manifest["parts"]):
            own = self._arrays_of(k)
            wanted, trees = NEEDED[part["form"]]
            lacking = [name for name in wanted if name not in own]
            lacking += [f"{prefix}{name}" for prefix in trees for name in TREES if f"{prefix}{name}" not in own]
            if lacking:
                raise ValueError(f"part {k} of the distribution lacks the arrays {lacking}")
            for prefix in trees:
                check_trees({name: own[f"{prefix}{name}"] for name in TREES}, len(self.manifest["features"]))

    def _arrays_of(self, k: int) -> dict[str, NDArray[Any]]:
        """The arrays of part k, without its number before their names."""
        begins = f"{k}_"
        return {name.removeprefix(begins): array for name, array in self.arrays.items() if name.startswith(begins)}

    @cached_property
    def parts(self) -> list[DistributionPart]:
        """With the tables of their trees. Raises ValueError for trees that are too deep."""
        made = []
        for k, stated in enumerate(self.manifest["parts"]):
            own = self._arrays_of(k)
            _, trees = NEEDED[stated["form"]]
            forests = {prefix: TreeEnsemble({name: own[f"{prefix}{name}"] for name in TREES}) for prefix in trees}
            made.append(DistributionPart(stated, own, forests))
        return made

    def forecast(self, observations: ArrayLike, partition: Sequence[str] | None = None) -> Waits:
        """Of observations (n, features) and the name of each one's partition; None, or one never seen, is any.

        Raises ValueError at another width or where a number is not finite.
        """
        rows = self._checked(observations)
        names = {name: at for at, name in enumerate(self.manifest["partitions"])}
        code = np.full(len(rows), -1, np.int64)
        if partition is not None:
            if len(partition) != len(rows):
                raise ValueError(f"{len(partition)} partitions for {len(rows)} observations")
            code = np.array([names.get(name, -1) for name in partition], np.int64)
        size = rows[:, self.manifest["features"].index("size")]
        size_class = np.searchsorted(np.asarray(self.manifest["sizes"], np.float64), size)
        told = ForecastInputs(rows, code, np.where(code < 0, -1, code * 3 + size_class))
        quantiles, short = np.zeros((len(rows), len(LEVELS))), np.zeros(len(rows))
        for begin in range(0, len(rows), BLOCK_ROWS):
            block = slice(begin, begin + BLOCK_ROWS)
            of_block = ForecastInputs(told.observed[block], told.partition[block], told.group[block])
            for part in self.parts:
                said = FORMS[part.stated["form"]](part, of_block)
                quantiles[block] += float(part.stated["of_wait"]) * ordered(said.quantiles_s)
                short[block] += float(part.stated["of_short"]) * said.p_under_600s
        group, level, of_all = (self.arrays[name] for name in MOVES)
        return Waits(move(ordered(quantiles), told.group, group, level, of_all), np.clip(short, 0.0, 1.0))

    def with_checks(self, observations: ArrayLike, partition: Sequence[str]) -> Distribution:
        """The same, that must answer these observations (n, features) wherever it is loaded as it does here."""
        rows = self._checked(observations)
        said = self.forecast(rows, partition)
        answers = {"quantiles_s": said.quantiles_s.tolist(), "p_under_600s": said.p_under_600s.tolist()}
        return replace(self, checks={"observations": rows.tolist(), "partition": list(partition), **answers})

    def replay(self) -> None:
        """Raise ValueError unless the observations of `checks` give the answers that stand there."""
        if self.checks is None:
            return
        rows = self._checked(self.checks["observations"])
        if len(rows) > MAX_CHECKS:
            raise ValueError(f"{CHECKS} holds over {MAX_CHECKS} observations")
        said = self.forecast(rows, self.checks["partition"])
        for name, found in said._asdict().items():
            stated = np.asarray(self.checks[name], np.float64)
            if stated.shape != found.shape:
                raise ValueError(f"{CHECKS}: {name} has shape {stated.shape}, not {found.shape}")
            apart = np.abs(found - stated) > CHECK_TOLERANCE * np.maximum(1.0, np.abs(stated))
            if apart.any():
                at = tuple(int(place) for place in np.argwhere(apart)[0])
                raise ValueError(
                    f"{CHECKS}: {name} of observation {at[0]} is {found[at]:.9g} here and {stated[at]:.9g} where it "
                    "was released: this is not the model that was released, or not on this installation of numpy"
                )

    def _checked(self, observations: ArrayLike) -> Float32s:
        rows = np.ascontiguousarray(observations, np.float32)
        names = self.manifest["features"]
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise ValueError(f"observations of shape {rows.shape}; the distribution needs (n, {len(names)})")
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise ValueError(f"observation {row}: {names[column]} is {rows[row, column]}, not a finite number")
        return rows

    def save(self, folder: Path | str) -> None:
        """Write the folder, the same bytes for the same distribution; an older one there is replaced as a whole."""
        files = {ARRAYS: pack_arrays(self.arrays)}
        if self.checks is not None:
            files[CHECKS] = (json.dumps(self.checks, sort_keys=True, allow_nan=False) + "\n").encode()
        stated = {**self.manifest, "sha256": digests(files)}
        files["manifest.json"] = (json.dumps(stated, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
        write_folder(Path(folder), files)

    @classmethod
    def load(cls, folder: Path | str, features: Sequence[str] | None = None) -> Distribution:
        """Read a folder. `features`: the names that the caller will observe, in order; others are refused.

        Raises ValueError, one line, for anything that is not a whole distribution of this format.
        """
        folder = Path(folder)
        with one_line(f"{folder}: unreadable queue-time model"):
            manifest = json_object("manifest.json", read_file(folder / "manifest.json", MAX_MANIFEST_BYTES))
            check_manifest(manifest)
            stated = manifest.pop("sha256", None)
            stated = stated if isinstance(stated, dict) else {}
            files = {ARRAYS: read_file(folder / ARRAYS, MAX_ARRAY_BYTES)}
            if CHECKS in stated:
                files[CHECKS] = read_file(folder / CHECKS, MAX_CHECKS_BYTES)
            found = digests(files)
            for name in (*found, *stated):
                if stated.get(name) != found.get(name):
                    raise ValueError(f"{name} is damaged or truncated (sha256 differs from manifest.json)")
            if features is not None and list(features) != manifest["features"]:
                raise ValueError(difference(list(features), manifest["features"]))
            checks = json_object(CHECKS, files[CHECKS]) if CHECKS in files else None
            loaded = cls(manifest, unpack_arrays(files[ARRAYS]), checks)
            loaded.replay()
            return loaded


# -- what must hold ------------------------------------------------------------------------------------------------


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise ValueError unless the manifest has every key, of its type, in this format."""
    if manifest.get("kind") != KIND:
        raise ValueError(f"manifest.json: kind is {manifest.get('kind')!r}, not {KIND!r}")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"format_version {manifest.get('format_version')!r}; this program reads {FORMAT_VERSION}")
    for key, kind in KEYS.items():
        if not isinstance(manifest.get(key), kind):
            raise ValueError(f"manifest.json: {key} is missing or of another type")
    features, parts = manifest["features"], manifest["parts"]
    if not all(isinstance(n, str) for n in features) or not len(set(features)) == len(features) <= MAX_FEATURES:
        raise ValueError(f"manifest.json: features must be distinct names, at most {MAX_FEATURES}")
    if "size" not in features:
        raise ValueError("manifest.json: features lack size")
    if not all(isinstance(name, str) for name in manifest["partitions"]):
        raise ValueError("manifest.json: partitions must be names")
    if not 1 <= len(parts) <= MAX_PARTS:
        raise ValueError(f"manifest.json: parts must be 1 to {MAX_PARTS}")
    for k, part in enumerate(parts):
        if not isinstance(part, dict) or part.get("form") not in FORMS:
            raise ValueError(f"manifest.json: the form of part {k} is not one of {', '.join(FORMS)}")
        for weight in ("of_wait", "of_short"):
            if not isinstance(part.get(weight), int | float) or not 0.0 <= part[weight] <= 1.0:
                raise ValueError(f"manifest.json: {weight} of part {k} is not within 0 to 1")
        if "column" in part and not (isinstance(part["column"], int) and 0 <= part["column"] < len(features)):
            raise ValueError(f"manifest.json: part {k} reads a feature that there is not")


def check_moves(arrays: Arrays) -> None:
    """Raise ValueError unless every group's levels, and those of all, are one for each of LEVELS within 0 to 1."""
    if any(name not in arrays for name in MOVES):
        raise ValueError(f"the distribution lacks one of the arrays {', '.join(MOVES)}")
    group, level, of_all = (arrays[name] for name in MOVES)
    if of_all.shape != LEVELS.shape or level.shape != (len(group), len(LEVELS)):
        raise ValueError(f"moved levels must be {len(LEVELS)} a group")
    if not all(((array >= 0.0) & (array <= 1.0)).all() for array in (level, of_all)):
        raise ValueError("moved levels must lie within 0 to 1")


# -- arithmetic that fits share ------------------------------------------------------------------------------------


def ordered(quantiles_s: Float64s) -> Float64s:
    """(n, levels) with rising rows, within a year."""
    return np.clip(np.sort(quantiles_s, axis=1), 0.0, LONGEST_S)


def move(quantiles_s: Float64s, group: Int64s, groups: Int64s, level: Float64s, of_all: Float64s) -> Float64s:
    """(n, levels) read off rising (n, levels) at other levels: `level` (g, levels) of `groups` (g,), else `of_all`.

    Below the lowest quantile it goes on to half of it, above the highest to half as much again.
    """
    out = np.empty_like(quantiles_s)
    ends = np.concatenate([[0.0], LEVELS, [1.0]])
    padded = np.concatenate([quantiles_s[:, :1] * 0.5, quantiles_s, quantiles_s[:, -1:] * 1.5], axis=1)
    place = {int(one): at for at, one in enumerate(groups)}
    for one in np.unique(group):
        rows = group == one
        known = place.get(int(one))
        wanted = of_all if known is None else level[known]
        at = np.clip(np.searchsorted(ends, wanted) - 1, 0, len(ends) - 2)
        part = (wanted - ends[at]) / (ends[at + 1] - ends[at])
        out[rows] = padded[rows][:, at] * (1 - part) + padded[rows][:, at + 1] * part
    return ordered(out)


def of_bins(score: Float64s, points: Float64s, base: Float64s, longest_s: float) -> Waits:
    """From scores (n, classes): `points` (classes x points of a class,), log(1 + s) less `base` (n,), stand for each.

    Twice `longest_s` is the most that is said.
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
    """With probability p (n,) a short wait, of quantiles `short_s`, else a long one: `log_wait` (n,) and its errors.

    log_wait: log(1 + s); short_s, error: (levels,).
    """
    p = np.clip(p, 1e-4, 1 - 1e-4)[:, None]
    level = LEVELS[None]
    short = np.interp(np.minimum(level / p, 1.0), LEVELS, short_s)
    apart = np.interp(np.clip((level - p) / (1 - p), 0.0, 1.0), LEVELS, error)
    long = np.clip(np.expm1(log_wait[:, None] + apart), SHORT_S, longest_s)
    return Waits(np.where(level <= p, short, long), p[:, 0])


# -- forms ---------------------------------------------------------------------------------------------------------


def bins(part: DistributionPart, told: ForecastInputs) -> Waits:
    """Trees score classes of the wait, from a start by the estimate of feature `column` (h), in classes of `cuts_h`.

    `is_relative`: the points are relative to it. `start` (classes of estimates, classes), `of_class` (trees,).
    """
    stated, arrays = part.stated, part.arrays
    base_h = told.observed[:, stated["column"]].astype(np.float64)
    start = arrays["start"][np.searchsorted(np.asarray(stated["cuts_h"]), base_h)].astype(np.float64)
    score = part.forests[""].sums(told.observed, arrays["of_class"], start)
    base = np.log1p(np.maximum(base_h, 0.0) * 3600.0) if stated["is_relative"] else np.zeros(len(base_h))
    return of_bins(score, arrays["points"], base, float(stated["longest_s"]))


def hierarchy(part: DistributionPart, told: ForecastInputs) -> Waits:
    """The log-odds of a short wait are the sum of the trees `class_`, log(1 + s) of a long one that of `number_`."""
    odds, number = (
        np.ascontiguousarray(part.forests[prefix].leaves(told.observed).T).sum(axis=1)  # row by row, pairwise
        for prefix in ("class_", "number_")
    )
    p = 1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0)))
    return of_hierarchy(p, number, part.arrays["short_s"], part.arrays["error"], float(part.stated["longest_s"]))


def residuals(part: DistributionPart, told: ForecastInputs) -> Waits:
    """The estimate of feature `column` (h) with its residuals, by class of estimate (`cuts_s`) and group."""
    stated, arrays = part.stated, part.arrays
    point_s = told.observed[:, stated["column"]].astype(np.float64) * 3600.0
    kind = np.searchsorted(np.asarray(stated["cuts_s"]), point_s, side="right")
    level, short = arrays["of_class"][kind].astype(np.float64), arrays["short"][kind].astype(np.float64)
    for k in range(len(arrays["group"])):
        mine = (kind == arrays["group_class"][k]) & (told.group == arrays["group"][k])
        level[mine], short[mine] = arrays["group_level"][k], arrays["group_short"][k]
    quantiles = np.expm1(np.log1p(np.maximum(point_s, 0.0))[:, None] + level)
    return Waits(np.minimum(quantiles, float(stated["longest_s"])), short)


def table(part: DistributionPart, told: ForecastInputs) -> Waits:
    """The quantiles and the share of short waits of each partition; of all jobs for one that was never seen."""
    arrays = part.arrays
    place = {int(one): at for at, one in enumerate(arrays["partition"])}
    at = np.array([place.get(int(one), len(place)) for one in told.partition], np.int64)
    return Waits(arrays["quantiles_s"][at].astype(np.float64), arrays["short"][at].astype(np.float64))


FORMS: dict[str, Form] = {"bins": bins, "hierarchy": hierarchy, "residuals": residuals, "table": table}
# Of each form the arrays that it needs, and the prefixes of its trees.
NEEDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bins": (("points", "start", "of_class"), ("",)),
    "hierarchy": (("short_s", "error"), ("class_", "number_")),
    "residuals": (("of_class", "short", "group", "group_class", "group_level", "group_short"), ()),
    "table": (("partition", "quantiles_s", "short"), ()),
}
